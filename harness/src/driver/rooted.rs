//! Starts a driver with a directory as its `/`, such as its unpacked image, as a container runtime does. Runs in the
//! driver's first process, with one thread, and is then replaced by the driver.
//!
//! Mounts below the node's root propagate both ways: what the driver mounts there appears on the node. What the driver
//! writes to its `/` goes into a layer that ends with it; the directory itself does not change.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use rustix::fs::CWD;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};
use serde::{Deserialize, Serialize};

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
}

/// The command line that starts a driver in its root.
pub(super) fn command(
    root: &Path,
    manifest: &Manifest,
    layout: &Layout,
    (command, directory): (Vec<String>, Option<&Path>),
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
    let orders = Orders { root: root.to_owned(), seen, service_account, layers, command, directory };
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
    let error = Command::new(program).args(arguments).exec();
    eprintln!("error: cannot start `{program}` in `{root}`: {error}");
    ExitCode::FAILURE
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
    for (path, tree) in seen {
        let target = inside(&root, path);
        let made = match path.is_dir() {
            true => fs::create_dir_all(&target),
            false => target.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&target, "")),
        };
        made.map_err(at(format!("make `{}`", path.display())))?;
        move_mount(&tree, "", CWD, &target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
            .map_err(at(format!("mount `{}` in it", path.display())))?;
    }
    nix::unistd::chdir(&root).map_err(at("enter it"))?;
    nix::unistd::pivot_root(".", ".").map_err(at("pivot to it"))?;
    umount2(".", MntFlags::MNT_DETACH).map_err(at("unmount the old root"))?;
    let directory = orders.directory.display().to_string();
    nix::unistd::chdir(&orders.directory).map_err(at(format!("enter the working directory `{directory}`")))
}

/// The path below `root`, before that becomes `/`. `/var/run` stands for `/run` if it is a link, as in most images: the
/// link is absolute and would lead out of `root`.
fn inside(root: &Path, path: &Path) -> PathBuf {
    let path = match path.strip_prefix("/var/run") {
        Ok(below) if root.join("var/run").is_symlink() => Path::new("run").join(below),
        _ => path.strip_prefix("/").unwrap_or(path).to_owned(),
    };
    root.join(path)
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
