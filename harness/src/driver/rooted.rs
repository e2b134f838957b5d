//! Starts a driver with a directory as its `/`, such as its unpacked image, as a container runtime does. Runs in the
//! driver's first process, with one thread, and is then replaced by the driver.
//!
//! Mounts below the node's root propagate both ways: what the driver mounts there appears on the node. What the driver
//! writes to its `/` goes into a layer that ends with it; the directory itself does not change.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, mkdirat, openat, openat2, unlinkat};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};
use serde::{Deserialize, Serialize};

use super::interpreter;
use crate::Layout;
use crate::manifest::Manifest;

pub(crate) const SUBCOMMAND: &str = "__driver-root";

/// Paths of the machine that a driver sees in its root, if the machine has them.
const SEEN: [&str; 5] = ["/dev", "/proc", "/sys", "/etc/resolv.conf", "/etc/hosts"];

#[derive(Debug, Serialize, Deserialize)]
struct Orders {
    root: PathBuf,
    seen: Vec<PathBuf>,
    /// Whether the driver sees the files of its service account.
    service_account: bool,
    /// The directory for the layers of its `/`.
    layers: PathBuf,
    command: Vec<String>,
    /// The driver's working directory, as a path in its root.
    directory: PathBuf,
    /// Variables that are set for the driver alone: those of an image would change this program, too.
    env: BTreeMap<String, String>,
}

/// A driver as it is started in its root.
pub(super) struct Program<'a> {
    pub(super) command: Vec<String>,
    pub(super) directory: Option<&'a Path>,
    /// Variables that only its root has.
    pub(super) env: BTreeMap<String, String>,
}

/// The command line that starts a driver in its root.
pub(super) fn command(
    root: &Path,
    manifest: &Manifest,
    layout: &Layout,
    Program { command, directory, env }: Program<'_>,
    is_controller: bool,
) -> Vec<String> {
    // A path below one of these is visible with it.
    let opened = manifest.host_paths.iter().filter(|path| !SEEN.iter().any(|seen| path.starts_with(seen)));
    let seen = SEEN.into_iter().map(PathBuf::from).filter(|path| path.exists());
    let seen = seen.chain([layout.root().to_owned(), layout.driver_state()]).chain(opened.cloned());
    let seen = seen.collect();
    let layers = layout.state().join(if is_controller { "controller-root" } else { "root" });
    let service_account = Path::new(Layout::SERVICE_ACCOUNT).is_dir() && manifest.wants_kubernetes();
    let directory = directory.unwrap_or(Path::new("/")).to_owned();
    let orders = Orders { root: root.to_owned(), seen, service_account, layers, command, directory, env };
    let orders = serde_json::to_string(&orders).expect("paths that came from text are text");
    vec!["/proc/self/exe".to_owned(), SUBCOMMAND.to_owned(), orders]
}

/// Becomes the driver. Returns only if that fails.
pub(crate) fn main(orders: &str) -> ExitCode {
    let orders: Orders = match serde_json::from_str(orders) {
        Ok(orders) => orders,
        Err(error) => {
            eprintln!("error: {SUBCOMMAND} is called by the harness: {error}");
            return ExitCode::FAILURE;
        }
    };
    let root = orders.root.display();
    let Some((program, arguments)) = orders.command.split_first() else { return ExitCode::FAILURE };
    if let Err((step, error)) = enter(&orders) {
        eprintln!("error: cannot make `{root}` the driver's root: cannot {step}: {error}");
        return ExitCode::FAILURE;
    }
    let error = Command::new(program).args(arguments).envs(&orders.env).exec();
    eprintln!("error: cannot start `{program}` in `{root}`: {}", reason(program, &orders.env, &error));
    ExitCode::FAILURE
}

/// Why a program of this root cannot be started, with what to do.
fn reason(program: &str, env: &BTreeMap<String, String>, error: &io::Error) -> String {
    match (error.raw_os_error(), interpreter::missing(program, env)) {
        (Some(libc::ENOENT), Some(interpreter)) => {
            let interpreter = interpreter.display();
            format!("its interpreter `{interpreter}` is not there; add it to the root or image")
        }
        (Some(libc::ENOENT), None) => {
            format!("{error}; `command` in the manifest is a path in the root or image")
        }
        (Some(libc::ENOEXEC), _) => {
            format!("{error}; it is built for another machine, or a script without `#!`")
        }
        _ => error.to_string(),
    }
}

/// The step that failed, and its error.
type Failed = (String, io::Error);

fn enter(orders: &Orders) -> Result<(), Failed> {
    // Before unshare: only then are the clones peers of the node's mounts.
    let account = orders.service_account.then(|| PathBuf::from(Layout::SERVICE_ACCOUNT));
    let seen = orders.seen.iter().chain(&account).map(|path| Ok((path, cloned(path)?)));
    let seen = seen.collect::<Result<Vec<_>, Failed>>()?;
    unshare(CloneFlags::CLONE_NEWNS).map_err(at("make a mount namespace"))?;
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(None::<&str>, "/", None::<&str>, private, None::<&str>).map_err(at("make all mounts private"))?;

    let root = layered(&orders.root, &orders.layers)?;
    let top = File::open(&root).map_err(at("open it"))?.into();
    let onto = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    for (path, tree) in seen {
        let target = place(&top, path).map_err(at(format!("make `{}`", path.display())))?;
        move_mount(&tree, "", &target, "", onto).map_err(at(format!("mount `{}` in it", path.display())))?;
    }
    nix::unistd::chdir(&root).map_err(at("enter it"))?;
    nix::unistd::pivot_root(".", ".").map_err(at("pivot to it"))?;
    umount2(".", MntFlags::MNT_DETACH).map_err(at("unmount the old root"))?;
    let directory = orders.directory.display().to_string();
    nix::unistd::chdir(&orders.directory).map_err(at(format!("enter the working directory `{directory}`")))
}

/// The place of a path of the machine in the root before that becomes `/`, made if it is missing.
fn place(root: &OwnedFd, path: &Path) -> rustix::io::Result<OwnedFd> {
    if path.is_dir() {
        return directory(root, path);
    }
    let name = path.file_name().ok_or(Errno::INVAL)?;
    let parent = directory(root, path.parent().unwrap_or(Path::new("/")))?;
    match opened(root, path, OFlags::PATH) {
        Err(Errno::NOENT) => {}
        found => return found,
    }
    remove_link(&parent, name)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    openat(&parent, name, flags, Mode::from_raw_mode(0o644))?;
    opened(root, path, OFlags::PATH)
}

fn directory(root: &OwnedFd, path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY;
    let (Err(Errno::NOENT), Some(name)) = (opened(root, path, flags), path.file_name()) else {
        return opened(root, path, flags);
    };
    let parent = directory(root, path.parent().unwrap_or(Path::new("/")))?;
    remove_link(&parent, name)?;
    mkdirat(&parent, name, Mode::from_raw_mode(0o755))?;
    opened(root, path, flags)
}

/// Opens a path as if the root were `/`: images have absolute links, which would lead out of it.
fn opened(root: &OwnedFd, path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    openat2(root, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve)
}

/// Removes a link that leads nowhere, such as `/etc/resolv.conf` in many images.
fn remove_link(parent: &OwnedFd, name: &OsStr) -> rustix::io::Result<()> {
    match unlinkat(parent, name, AtFlags::empty()) {
        Err(Errno::NOENT) => Ok(()),
        removed => removed,
    }
}

fn cloned(path: &Path) -> Result<OwnedFd, Failed> {
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    open_tree(CWD, path, flags).map_err(at(format!("clone `{}`", path.display())))
}

/// An overlay over the directory, which takes all writes.
fn layered(root: &Path, layers: &Path) -> Result<PathBuf, Failed> {
    fs::create_dir_all(layers).map_err(at("make the directory for its layers"))?;
    mount(Some("driver"), layers, Some("tmpfs"), MsFlags::empty(), Some("mode=755"))
        .map_err(at("mount a tmpfs"))?;
    let [upper, work, whole] = ["upper", "work", "whole"].map(|name| layers.join(name));
    for directory in [&upper, &work, &whole] {
        fs::create_dir(directory).map_err(at("make a layer"))?;
    }
    let escaped = root.to_string_lossy().replace('\\', "\\\\").replace(':', "\\:").replace(',', "\\,");
    let options = format!("lowerdir={escaped},upperdir={},workdir={}", upper.display(), work.display());
    mount(Some("driver"), &whole, Some("overlay"), MsFlags::empty(), Some(options.as_str()))
        .map_err(at("mount an overlay over it"))?;
    Ok(whole)
}

fn at<E: Into<io::Error>>(step: impl Into<String>) -> impl FnOnce(E) -> Failed {
    move |error| (step.into(), error.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_an_image_are_set_for_the_driver_alone() {
        let layout = Layout::new("/kl", "/vp");
        let manifest = Manifest::from_command("/driver").unwrap();
        let env = BTreeMap::from([("LD_PRELOAD".to_owned(), "/lib/of-the-image.so".to_owned())]);
        let program = Program { command: manifest.command.clone(), directory: None, env: env.clone() };
        let words = command(Path::new("/root"), &manifest, &layout, program, false);
        let orders: Orders = serde_json::from_str(&words[2]).unwrap();
        assert_eq!((orders.env, orders.command), (env, manifest.command));
    }
}
