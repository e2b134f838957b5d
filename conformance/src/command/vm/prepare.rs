//! Prepares guests from the name of a kernel. Fetches nothing: a missing package is an error with the command that fetches
//! it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use harness::manifest::{Manifest, Secrets};
use vm_images::cache::Cache;
use vm_images::fetch;
use vm_images::images::Images;
use vm_images::outfit::{BuiltGuest, Outfit};
use vm_images::protocol::DRIVER_ROOT;
use vm_images::qemu::{self, Boot, Machine, Verdict};
use vm_images::root_disk::{self, RootDisk, RootDiskError};

use super::super::image::DriverImage;
use super::super::{Exit, on_path};
use runner::dispatch::guest::Kind;
use runner::dispatch::{Guests, Ledger};
use testbed::failure::chain;

/// The memory of a guest in MiB. Memory that it does not use costs nothing.
const MEMORY: u32 = 1024;

/// A kernel whose packages are here.
#[derive(Debug, Clone)]
pub(in crate::command) struct Chosen {
    pub(in crate::command) name: String,
    packages: Vec<PathBuf>,
}

/// The cache of guests that all runs of this user share.
pub(super) fn cache() -> Result<Cache, Exit> {
    Cache::of_user().map_err(|error| Exit::environment(error.to_string()))
}

/// The chosen kernels: the default one if none is named, every kernel for `all`, the package for a file.
pub(in crate::command) fn chosen(asked: &[String]) -> Result<Vec<Chosen>, Exit> {
    let images = Images::built_in();
    let default = [images.default_kernel().name.clone()];
    let all: Vec<String> = images.kernels().iter().map(|kernel| kernel.name.clone()).collect();
    let names = match asked {
        [] => &default[..],
        [word] if word == "all" => &all[..],
        names => names,
    };
    names.iter().map(|name| chosen_kernel(&images, name)).collect()
}

/// The default kernel, if guests can be started with it without fetching anything.
pub(in crate::command) fn at_hand() -> Result<Chosen, Exit> {
    emulator()?;
    Ok(chosen(&[])?.remove(0))
}

fn chosen_kernel(images: &Images, name: &str) -> Result<Chosen, Exit> {
    if name.ends_with(".deb") {
        let file = PathBuf::from(name);
        if !file.is_file() {
            return Err(Exit::usage(format!("there is no package `{name}`")));
        }
        let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        return Ok(Chosen { name: stem, packages: vec![file] });
    }
    let kernel = images.find(name).map_err(|error| Exit::usage(error.to_string()))?;
    let packages = fetch::cached(&cache()?, kernel)
        .map_err(|error| Exit::environment("cannot look for the guest's kernel").details(chain(&error)))?;
    match packages {
        Some(packages) => Ok(Chosen { name: name.to_owned(), packages }),
        None => Err(Exit::environment(format!("cannot boot a guest: kernel {kernel} is not here"))
            .hint(format!("`volproof vm fetch {name}` fetches it, once"))),
    }
}

pub(super) fn emulator() -> Result<PathBuf, Exit> {
    qemu::find().ok_or_else(|| {
        Exit::environment(format!("cannot boot a guest: `{}` is not installed", qemu::PROGRAM))
            .hint("on Debian and Ubuntu: apt-get install --no-install-recommends qemu-system-x86")
    })
}

/// What a guest has beside its kernel, and how long it may take to boot.
#[derive(Debug)]
pub(in crate::command) struct Contents {
    pub(in crate::command) files: Vec<PathBuf>,
    pub(in crate::command) modules: Vec<String>,
    pub(in crate::command) root: Option<RootDisk>,
    pub(in crate::command) within: Duration,
}

impl Contents {
    pub(super) fn empty(within: Duration) -> Self {
        Self { files: vec![], modules: vec![], root: None, within }
    }
}

/// Builds missing images, and finds out whether KVM or emulation will run the guests.
pub(in crate::command) async fn guests(kernel: Chosen, contents: Contents) -> Result<Guests, Exit> {
    let kind = tokio::task::spawn_blocking(move || kind(kernel, contents, &["__guest"])).await;
    Ok(Guests::new(kind.map_err(|error| Exit::environment(error.to_string()))??))
}

/// A kind of guest whose PID 1 gets these arguments.
pub(super) fn kind(kernel: Chosen, contents: Contents, init: &[&str]) -> Result<Kind, Exit> {
    let Contents { files, modules, root, within } = contents;
    let qemu = emulator()?;
    let cache = cache()?;
    let program = std::env::current_exe().map_err(|error| Exit::environment(error.to_string()))?;
    let failed = |chain: Vec<String>| Exit::environment("cannot build a guest").details(chain);
    let outfit = Outfit { packages: kernel.packages, program, files, modules };
    let fitted = outfit.build_or_reuse(&cache).map_err(|error| failed(chain(&error)))?;
    let archive = std::fs::metadata(fitted.initramfs()).map_err(|error| failed(chain(&error)))?;
    fits_into_memory(archive.len() >> 20)?;
    let boot = boot(&fitted, qemu, init);
    let boot = Boot { root: root.as_ref().map(RootDisk::path), within, ..boot };
    let kept = cache.dir("guests").map_err(|error| failed(chain(&error)))?.join("accelerator");
    let verdict = verdict(&boot, &kept);
    let boot = Boot { accelerator: verdict.accelerator, ..boot };
    // Snapshots of guests with a driver's root go with that.
    let machine = Machine::new(boot, root.as_ref().map_or(&fitted.dir, RootDisk::dir));
    Ok(Kind { machine, fitted: Arc::new(fitted), root: root.map(Arc::new), verdict })
}

/// Refuses an archive that the guest's kernel could not unpack: archive and files are in memory together then.
fn fits_into_memory(mib: u64) -> Result<(), Exit> {
    let most = u64::from(MEMORY) / 2;
    if mib <= most {
        return Ok(());
    }
    let what =
        format!("cannot boot a guest: its files have {mib} MiB, and at most {most} MiB fit into its memory");
    Err(Exit::environment(what).hint(
        "`files` below `[guest]` in the manifest have to be fewer or smaller; a driver with a `root` or an `image` has \
         them on a disk",
    ))
}

fn boot(fitted: &BuiltGuest, qemu: PathBuf, init: &[&str]) -> Boot {
    Boot {
        qemu,
        kernel: fitted.kernel(),
        initramfs: fitted.initramfs(),
        init: init.iter().map(|word| (*word).to_owned()).collect(),
        memory_mib: MEMORY,
        accelerator: qemu::Accelerator::Tcg,
        disks: vec![],
        root: None,
        within: qemu::WITHIN,
    }
}

/// Whether KVM or emulation runs guests on this machine. Only a guest that answers proves KVM, so one is booted.
fn verdict(boot: &Boot, kept: &Path) -> Verdict {
    let answering = Boot { init: vec!["__guest".to_owned()], ..boot.clone() };
    qemu::probe(&answering, kept)
}

/// The disk with the driver's root, if the driver has one; the manifest gets the place of that in a guest.
pub(in crate::command) async fn root_disk(
    manifest: &mut Manifest,
    image: Option<&DriverImage>,
    ledger: &Ledger,
) -> Result<Option<RootDisk>, Exit> {
    let cache = cache()?;
    let place = Path::new(DRIVER_ROOT);
    let (name, root) = match (image, manifest.root.replace(place.to_owned())) {
        (Some(image), _) => {
            image.adopt(manifest, place)?;
            let name = image.name();
            // The name is that of the content: a disk that is there makes it unnecessary to unpack the image.
            if let Some(disk) = RootDisk::cached(&cache, &name).map_err(no_disk)? {
                return Ok(Some(disk));
            }
            (name, image.root(ledger).await?.to_owned())
        }
        (None, Some(root)) if root.is_dir() => (root_disk::name_of(&root).map_err(no_disk)?, root),
        (None, Some(root)) => {
            return Err(Exit::usage(format!("the driver's root `{}` is not a directory", root.display()))
                .hint("an image that is not unpacked is given as `image = \"FILE\"`"));
        }
        (None, None) => {
            manifest.root = None;
            return Ok(None);
        }
    };
    let made = tokio::task::spawn_blocking(move || match RootDisk::cached(&cache, &name)? {
        Some(disk) => Ok(disk),
        None => RootDisk::make(&cache, &name, &root),
    });
    let made = made.await.map_err(|error| Exit::environment(error.to_string()))?;
    made.map(Some).map_err(no_disk)
}

fn no_disk(error: RootDiskError) -> Exit {
    let hint = error.hint();
    Exit::environment("cannot take the driver's root into a guest").details(chain(&error)).maybe_hint(hint)
}

/// The files that a guest needs for this driver: its program, the manifest's files, and its secrets. A program that is
/// found on `PATH` gets its whole path in the manifest.
pub(in crate::command) fn packed(manifest: &mut Manifest) -> Result<Vec<PathBuf>, Exit> {
    let mut files = manifest.guest.files.clone();
    let Manifest { command, controller_command, per_case, root, .. } = manifest;
    // Programs in the driver's root are in the guest already.
    let of_driver = [command, controller_command].into_iter().filter(|_| root.is_none());
    let commands = of_driver.chain([&mut per_case.prepare, &mut per_case.cleanup]);
    let programs = commands.filter_map(|command| command.first_mut());
    let is_brought = |program: &&mut String| *program != "/proc/self/exe" && !program.starts_with("{root}");
    for program in programs.filter(is_brought) {
        let path = match program.contains('/') {
            true => Some(PathBuf::from(&*program)).filter(|path| path.is_file()),
            false => on_path(program),
        };
        let Some(path) = path else {
            return Err(Exit::environment(format!(
                "cannot put `{program}` into the guest: there is no such program"
            )));
        };
        *program = path.to_string_lossy().into_owned();
        files.push(path);
    }
    files.extend(manifest.kubernetes.iter().flat_map(|kubernetes| kubernetes.objects.clone()));
    files.extend(manifest.all_secrets().flat_map(Secrets::files).cloned());
    match files.iter().find(|file| !file.exists()) {
        Some(missing) => {
            Err(Exit::usage(format!("there is no `{}` to put into the guest", missing.display())))
        }
        None => Ok(files),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_do_not_fit_into_a_guest_are_refused_before_it_boots() {
        assert!(fits_into_memory(512).is_ok());
        let refused = fits_into_memory(770).map_err(|exit| (exit.message, exit.hint.is_some()));
        let what = "cannot boot a guest: its files have 770 MiB, and at most 512 MiB fit into its memory";
        assert_eq!(refused, Err((what.to_owned(), true)));
    }
}
