//! The view of the machine in a sandbox: its file systems below layers that are thrown away, and the sandbox's own `/tmp`,
//! `/run` and `/dev`. Mounts in the caller's mount namespace only, and makes a new root for it.
//!
//! This contains accidents, not malice: a process with all capabilities can leave any namespace. Writes to a layer are
//! found by a comparison with the directory below it.

mod compare;
mod devices;
mod layer;
mod plan;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::stat::{Mode, umask};
use rustix::fs::CWD;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};
use serde::{Deserialize, Serialize};

use super::SandboxError;
use super::furnish::{attach, device_of, make_dir, path_error, tmpfs};
use crate::container::flags::{Change, Reach, change};
use crate::observe::{self, Mount};
pub use compare::{Change as Changed, Written};
use layer::Layer;
use plan::Treatment;

/// The parts of the machine that a sandbox shows.
#[derive(Debug, Clone)]
pub struct MachineOptions {
    /// Whether `/dev` is the sandbox's own. A guest shows its whole `/dev`: its disks belong to its case, and come and go.
    pub own_dev: bool,
    /// Files and directories that are as they are outside, also for writing.
    pub open: Vec<PathBuf>,
    /// Files and directories below `/tmp` and `/run` that are to be found there, too.
    pub shown: Vec<PathBuf>,
    /// Directories that are found without a layer, and can only be read.
    pub read_only: Vec<PathBuf>,
    /// Most bytes that can be written over the machine's files.
    pub layer_bytes: u64,
}

impl Default for MachineOptions {
    fn default() -> Self {
        let (open, shown, read_only) = (Vec::new(), Vec::new(), Vec::new());
        MachineOptions { own_dev: true, open, shown, read_only, layer_bytes: 512 << 20 }
    }
}

/// The limits of a sandbox's isolation from the machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bounds {
    /// Why the machine's files are not protected at all, if they are not.
    pub open_because: Option<String>,
    /// Paths that were opened for writing.
    pub open: Vec<PathBuf>,
    /// Mount points that no layer can lie over, with the type of their file system: they can only be read.
    pub read_only: Vec<(PathBuf, String)>,
    /// Mount points that could not be shown at all.
    pub hidden: Vec<PathBuf>,
}

/// Most bytes in `/tmp`, in `/run` and in `/dev/shm`.
const OWN: [(&str, u64, &str); 3] =
    [("tmp", 256 << 20, "1777"), ("run", 32 << 20, "0755"), ("dev/shm", 64 << 20, "1777")];

/// Directories in `/run` that programs need and only the machine can provide: udev's database of devices, and on some
/// distributions the programs themselves.
const OF_RUN: [&str; 4] = ["/run/udev", "/run/current-system", "/run/booted-system", "/run/wrappers"];

/// Directories on which a scratch file system can be mounted while the new root is built: any will do.
const PLACES: [&str; 4] = ["/tmp", "/run", "/mnt", "/var/lib"];

/// The machine's file systems as this sandbox has them.
#[derive(Debug, Default)]
pub(super) struct Machine {
    layers: Vec<Layer>,
    pub(super) bounds: Bounds,
    /// Paths in the layers that the harness itself has written.
    own: BTreeSet<PathBuf>,
}

impl Machine {
    /// The machine as it is, and why.
    pub(super) fn open(because: impl Into<String>) -> Self {
        let bounds = Bounds { open_because: Some(because.into()), ..Bounds::default() };
        Machine { bounds, ..Machine::default() }
    }

    /// Changes the root of this mount namespace to a new one that shows the machine. These directories will be there.
    pub(super) fn enter(
        options: &MachineOptions,
        user_namespace: bool,
        directories: &[&Path],
    ) -> Result<Machine, SandboxError> {
        if options.open.iter().any(|path| path == Path::new("/")) {
            return Ok(Machine::open("`/` was opened"));
        }
        let here = std::env::current_dir().ok();
        let mounts = plan::visible(observe::mounts_of("thread-self").map_err(unreadable)?);
        let sources = Sources::open(options)?;
        let scratch = PLACES.iter().map(Path::new).find(|place| place.is_dir());
        let scratch = scratch.ok_or_else(|| path_error(Path::new("/tmp"), io::ErrorKind::NotFound.into()))?;
        tmpfs(scratch, options.layer_bytes, "0700")?;
        let root = scratch.join("root");
        let mut builder = Builder {
            scratch,
            root: &root,
            user_namespace,
            own_dev: options.own_dev,
            mounts: &mounts,
            directories,
            machine: Machine::default(),
        };
        // Nodes and directories get exactly the modes they are made with.
        let mask = umask(Mode::empty());
        // The change comes last: before it everything can be taken back.
        let done = builder.build(sources).and_then(|()| change_root(&root));
        umask(mask);
        if done.is_err() {
            let _ = umount2(scratch, MntFlags::MNT_DETACH);
        }
        done?;
        let mut machine = builder.machine;
        // Back to the old working directory, if the new root shows it.
        let _ = here.map(std::env::set_current_dir);
        machine.bounds.open.clone_from(&options.open);
        Ok(machine)
    }

    /// Takes note of what the harness has written until now, so that it is not taken for the driver's.
    pub(super) fn disregard_until_now(&mut self) {
        self.own = self.written().into_iter().map(|written| written.path).collect();
    }

    /// The changes of the machine's files, sorted by path.
    pub(super) fn written(&self) -> Vec<Written> {
        let mut all: Vec<Written> = self.layers.iter().flat_map(compare::written).collect();
        all.retain(|written| !self.own.contains(&written.path));
        all.sort_by(|a, b| a.path.cmp(&b.path));
        all
    }

    /// Whether the layers have no space left.
    pub(super) fn is_full(&self) -> bool {
        self.layers.first().is_some_and(Layer::is_full)
    }

    /// The devices of the directories that the sandbox has for itself: none if it is open to the machine.
    pub(super) fn own_devices(&self) -> Result<Vec<u64>, SandboxError> {
        if self.bounds.open_because.is_some() {
            return Ok(vec![]);
        }
        let own = OWN.iter().map(|(path, ..)| Path::new("/").join(path));
        own.filter(|path| !self.bounds.open.contains(path)).map(|path| device_of(&path)).collect()
    }

    /// The devices of the layers.
    pub(super) fn devices(&self) -> Result<Vec<u64>, SandboxError> {
        self.layers.iter().map(|layer| device_of(&layer.at)).collect()
    }
}

fn unreadable(error: observe::ObserveError) -> SandboxError {
    path_error(Path::new("/proc/self/mountinfo"), io::Error::other(error))
}

/// Trees of the machine that are shown as they are, cloned before anything covers them.
struct Sources {
    open: Vec<(PathBuf, OwnedFd)>,
    read_only: Vec<(PathBuf, OwnedFd)>,
    /// Directories below places that the sandbox has of its own.
    layered: Vec<(PathBuf, OwnedFd)>,
    /// Symbolic links with their targets.
    links: Vec<(PathBuf, PathBuf)>,
}

impl Sources {
    fn open(options: &MachineOptions) -> Result<Self, SandboxError> {
        let mut sources = Sources { open: vec![], read_only: vec![], layered: vec![], links: vec![] };
        for path in &options.open {
            sources.open.push((path.clone(), cloned(path).map_err(|source| path_error(path, source))?));
        }
        let mut found: Vec<PathBuf> = options.read_only.clone();
        found.extend(OF_RUN.iter().map(PathBuf::from));
        found.extend(resolver());
        for path in found {
            let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
            if metadata.is_symlink() {
                let target = fs::read_link(&path).map_err(|source| path_error(&path, source))?;
                sources.links.push((path, target));
            } else {
                let tree = cloned(&path).map_err(|source| path_error(&path, source))?;
                sources.read_only.push((path, tree));
            }
        }
        for path in outermost(&options.shown) {
            if path.is_dir() {
                sources.layered.push((path.clone(), layer::opened(&path)?));
            } else if path.exists() {
                let tree = cloned(&path).map_err(|source| path_error(&path, source))?;
                sources.read_only.push((path, tree));
            }
        }
        // Sorted, so that a path comes after its parents.
        for list in [&mut sources.open, &mut sources.read_only] {
            list.sort_by(|a, b| a.0.cmp(&b.0));
        }
        Ok(sources)
    }
}

/// These paths without those that lie below another one of them.
fn outermost(paths: &[PathBuf]) -> BTreeSet<PathBuf> {
    let is_below = |path: &PathBuf| paths.iter().any(|other| other != path && path.starts_with(other));
    paths.iter().filter(|path| !is_below(path)).cloned().collect()
}

/// The target of the link `/etc/resolv.conf`, if that is in `/run`.
fn resolver() -> Option<PathBuf> {
    let target = fs::canonicalize("/etc/resolv.conf").ok()?;
    let directory = target.parent()?;
    match directory == Path::new("/run") {
        true => Some(target),
        false => directory.starts_with("/run").then(|| directory.to_owned()),
    }
}

/// A path with all that is mounted below it, attached nowhere yet.
fn cloned(path: &Path) -> io::Result<OwnedFd> {
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    Ok(open_tree(CWD, path, flags)?)
}

/// The new root while it is put together.
struct Builder<'a> {
    /// A file system that is invisible later: the layers' own files lie on it.
    scratch: &'a Path,
    root: &'a Path,
    user_namespace: bool,
    own_dev: bool,
    mounts: &'a [Mount],
    /// Directories on which the harness will mount something.
    directories: &'a [&'a Path],
    machine: Machine,
}

impl Builder<'_> {
    fn build(&mut self, sources: Sources) -> Result<(), SandboxError> {
        make_dir(self.root, 0o755)?;
        match self.user_namespace {
            // Mounts that are inherited into a user namespace are locked, and nothing can be laid over a directory
            // with a locked mount below it.
            true => self.lay_in_pieces()?,
            false => self.lay(Path::new("/"), &self.mounts[0].opts)?,
        }
        for mount in &self.mounts[1..] {
            if self.show(mount).is_err() {
                self.machine.bounds.hidden.push(mount.target.clone());
            }
        }
        self.furnish_own()?;
        for directory in self.directories {
            self.make_room_for(directory)?;
        }
        for (path, target) in sources.links {
            self.make_place(&path, false)?;
            let place = self.inside(&path);
            let _ = fs::remove_file(&place);
            symlink(target, &place).map_err(|source| path_error(&path, source))?;
        }
        for (path, lower) in sources.layered {
            self.make_place(&path, true)?;
            let layer = self.layer(&path, lower, MsFlags::empty())?;
            self.machine.layers.push(layer);
        }
        for (path, tree) in sources.read_only {
            self.place(&path, &tree)?;
            let what = "a part of the machine, read-only,";
            change(tree.as_fd(), Change::ReadOnly, Reach::Below).map_err(|errno| SandboxError::Mount {
                what,
                target: path.clone(),
                source: errno.into(),
            })?;
        }
        for (path, tree) in sources.open {
            self.place(&path, &tree)?;
        }
        Ok(())
    }

    /// Shows one of the machine's mounts.
    fn show(&mut self, mount: &Mount) -> Result<(), SandboxError> {
        let target = &mount.target;
        // A volume of a real kubelet would be kept busy.
        if self.directories.iter().any(|directory| target.starts_with(directory)) {
            return Ok(());
        }
        match plan::treatment(mount) {
            Treatment::Own | Treatment::Hidden => Ok(()),
            // The root was built from several mounts, so this one is covered already.
            Treatment::Layer if self.user_namespace && self.has_mounts_below(target) => Ok(()),
            // A layer that is refused is no reason to fail: what cannot be written to is safe as well.
            Treatment::Layer if target.is_dir() => match self.lay(target, &mount.opts) {
                Ok(()) => Ok(()),
                Err(_) => self.show_read_only(mount, true),
            },
            Treatment::Layer => self.show_read_only(mount, false),
            Treatment::ReadOnly => self.show_read_only(mount, true),
            Treatment::AsItIs => self.place(target, &self.of_one_mount(target)?),
        }
    }

    /// Shows a directory with all mounts below it as it is outside.
    fn show_whole(&self, path: &Path) -> Result<(), SandboxError> {
        let tree = cloned(path).map_err(|source| path_error(path, source))?;
        self.place(path, &tree)
    }

    fn show_read_only(&mut self, mount: &Mount, is_reported: bool) -> Result<(), SandboxError> {
        let tree = self.of_one_mount(&mount.target)?;
        self.place(&mount.target, &tree)?;
        change(tree.as_fd(), Change::ReadOnly, Reach::Below).map_err(|errno| SandboxError::Mount {
            what: "a file system of the machine, read-only,",
            target: mount.target.clone(),
            source: errno.into(),
        })?;
        if is_reported {
            self.machine.bounds.read_only.push((mount.target.clone(), mount.fstype.clone()));
        }
        Ok(())
    }

    /// A clone of a mount without the mounts below it, which are shown by themselves. In a user namespace they cannot
    /// be left out.
    fn of_one_mount(&self, target: &Path) -> Result<OwnedFd, SandboxError> {
        let mut flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        flags.set(OpenTreeFlags::AT_RECURSIVE, self.user_namespace);
        open_tree(CWD, target, flags).map_err(|errno| path_error(target, errno.into()))
    }

    fn has_mounts_below(&self, path: &Path) -> bool {
        self.mounts.iter().any(|mount| mount.target.starts_with(path) && mount.target != path)
    }

    /// Lays a layer over a directory of the machine.
    fn lay(&mut self, path: &Path, flags: &str) -> Result<(), SandboxError> {
        let lower = layer::opened(path)?;
        let layer = self.layer(path, lower, plan::flags(flags))?;
        self.machine.layers.push(layer);
        Ok(())
    }

    fn layer(&self, at: &Path, lower: OwnedFd, flags: MsFlags) -> Result<Layer, SandboxError> {
        let own = self.scratch.join(format!("layer{}", self.machine.layers.len()));
        Layer::lay(at, lower, &own, &self.inside(at), flags, self.user_namespace)
    }

    /// A new root with a layer over each of its directories that has no mount below it.
    fn lay_in_pieces(&mut self) -> Result<(), SandboxError> {
        attach("a new root", self.root, Some("tmpfs"), MsFlags::empty(), Some("size=4m,mode=755"))?;
        let mut open = vec![PathBuf::from("/")];
        while let Some(dir) = open.pop() {
            // Entries that the user may not read are skipped: the user cannot change them either.
            for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
                let path = entry.path();
                let Ok(kind) = entry.file_type() else { continue };
                let place = self.inside(&path);
                if kind.is_symlink() {
                    let target = fs::read_link(&path).map_err(|source| path_error(&path, source))?;
                    symlink(target, &place).map_err(|source| path_error(&path, source))?;
                } else if !kind.is_dir() {
                    fs::write(&place, "").map_err(|source| path_error(&path, source))?;
                    if let Ok(tree) = cloned(&path) {
                        self.place(&path, &tree)?;
                    }
                } else {
                    make_dir(&place, mode_of(&path))?;
                    let mounted = self.mounts.iter().find(|mount| mount.target == path);
                    let in_pieces = mounted.is_none_or(|mount| plan::treatment(mount) == Treatment::Layer);
                    if plan::is_own(&path) {
                        continue;
                    }
                    match (self.has_mounts_below(&path), mounted) {
                        (true, _) if in_pieces => open.push(path),
                        // A directory that cannot be entered cannot be layered either.
                        (false, None) => drop(self.lay(&path, "")),
                        _ => {}
                    }
                }
            }
        }
        self.lay_where_its_user_writes();
        Ok(())
    }

    /// In a user namespace a layer cannot take a copy of a directory whose owner has no number there, and so nothing
    /// can be written below one. Directories that the user writes to get a layer of their own.
    fn lay_where_its_user_writes(&mut self) {
        let home = std::env::var_os("HOME").map(PathBuf::from);
        let here = std::env::current_dir().ok();
        let places = [Some(PathBuf::from("/var/tmp")), home, here];
        for place in places.into_iter().flatten().filter(|place| place.is_absolute() && !plan::is_own(place))
        {
            let is_laid = self.machine.layers.iter().any(|layer| layer.at == place);
            if !is_laid && !self.has_mounts_below(&place) && self.inside(&place).is_dir() {
                drop(self.lay(&place, ""));
            }
        }
    }

    /// Mounts what every sandbox has of its own.
    fn furnish_own(&mut self) -> Result<(), SandboxError> {
        for (path, _, _) in OWN.iter().filter(|(path, ..)| !path.contains('/')) {
            make_dir(&self.root.join(path), 0o755)?;
        }
        for path in ["proc", "sys", "dev"] {
            make_dir(&self.root.join(path), 0o755)?;
        }
        let proc_flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
        attach("proc", &self.root.join("proc"), Some("proc"), proc_flags, None)?;
        self.show_whole(Path::new("/sys"))?;
        match self.own_dev {
            true => devices::furnish(&self.root.join("dev"), self.user_namespace)?,
            false => self.show_whole(Path::new("/dev"))?,
        }
        for (path, bytes, mode) in OWN {
            let place = self.root.join(path);
            make_dir(&place, 0o755)?;
            let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
            attach("a tmpfs", &place, Some("tmpfs"), flags, Some(&format!("size={bytes},mode={mode}")))?;
        }
        make_dir(&self.root.join("run/lock"), 0o1777)
    }

    /// Sees to it that a directory of the harness can be there.
    fn make_room_for(&mut self, directory: &Path) -> Result<(), SandboxError> {
        let place = self.inside(directory);
        if place.is_dir() || fs::create_dir_all(&place).is_ok() {
            return Ok(());
        }
        // Another user's directory, in a user namespace. A layer over it is ours.
        let parent = directory.parent().unwrap_or(Path::new("/"));
        self.lay(parent, "")?;
        make_dir(&place, 0o755)
    }

    /// Attaches a tree at its place, which is made where the sandbox has a file system of its own.
    fn place(&self, path: &Path, tree: &OwnedFd) -> Result<(), SandboxError> {
        let is_dir = fs::metadata(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(tree)))
            .is_ok_and(|metadata| metadata.is_dir());
        self.make_place(path, is_dir)?;
        move_mount(tree, "", CWD, self.inside(path), MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH).map_err(
            |errno| SandboxError::Mount {
                what: "a part of the machine",
                target: path.to_owned(),
                source: errno.into(),
            },
        )
    }

    /// Makes a file or a directory to mount on, unless there is one.
    fn make_place(&self, path: &Path, is_dir: bool) -> Result<(), SandboxError> {
        let place = self.inside(path);
        if fs::symlink_metadata(&place).is_ok() {
            return Ok(());
        }
        let made = match (is_dir, place.parent()) {
            (true, _) => fs::create_dir_all(&place),
            (false, Some(parent)) => fs::create_dir_all(parent).and_then(|()| fs::write(&place, "")),
            (false, None) => Ok(()),
        };
        made.map_err(|source| path_error(path, source))
    }

    /// The place of a path of the machine while the root is built.
    fn inside(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }
}

fn mode_of(path: &Path) -> u32 {
    fs::symlink_metadata(path).map_or(0o755, |metadata| metadata.permissions().mode() & 0o7777)
}

/// Makes a directory the root of the namespace; the old one is gone with all of its mounts.
fn change_root(root: &Path) -> Result<(), SandboxError> {
    let refused =
        |source: io::Error| SandboxError::Mount { what: "a new root", target: root.to_owned(), source };
    nix::unistd::chdir(root).map_err(|errno| refused(errno.into()))?;
    nix::unistd::pivot_root(".", ".").map_err(|errno| refused(errno.into()))?;
    // The old root lies over the new one, at the same place.
    umount2(".", MntFlags::MNT_DETACH).map_err(|errno| refused(errno.into()))?;
    nix::unistd::chdir("/").map_err(|errno| refused(errno.into()))?;
    // Private, so that no later mount in the new root propagates to the machine.
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)
        .map_err(|errno| refused(errno.into()))
}
