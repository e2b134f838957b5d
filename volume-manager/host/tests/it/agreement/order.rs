//! Random calls to a host, and their answers as text.

use std::path::{Path, PathBuf};

use host::{
    Bind, Host, HostError, Metadata, MountOptions, MountSpec, OwnershipChange, Removal, WalkProgress, bind,
    cleanup, lookup,
};

use crate::random::Random;

/// A call. Paths are relative to the root; a link's target is used as it stands.
#[derive(Debug, Clone)]
pub(crate) enum Order {
    MakeDirAll(PathBuf, u32),
    MakeDir(PathBuf, u32),
    RemoveDir(PathBuf),
    RemoveFile(PathBuf),
    RemoveTree(PathBuf, Removal),
    ReadDir(PathBuf),
    ReadFile(PathBuf),
    Write(PathBuf, u32),
    Create(PathBuf, u32),
    Link(PathBuf, PathBuf),
    Rename(PathBuf, PathBuf),
    Chmod(PathBuf, u32),
    Chown(PathBuf, Option<u32>, Option<u32>),
    Own(PathBuf, bool),
    Look(PathBuf),
    Resolve(PathBuf),
    OpenBeneath(PathBuf, PathBuf),
    BindBeneath(PathBuf, PathBuf, PathBuf),
    MakeBeneath(PathBuf, PathBuf, u32),
    Tmpfs(PathBuf),
    Bind(PathBuf, PathBuf, bool),
    BindReadOnly(PathBuf, PathBuf),
    Unmount(PathBuf),
    CleanUp(PathBuf),
    Refs(PathBuf),
}

impl Order {
    /// Makes the call and returns its answer as text.
    pub(crate) async fn run(&self, host: &dyn Host, root: &Path) -> String {
        let at = |path: &Path| if path == Path::new("") { root.to_owned() } else { root.join(path) };
        match self {
            Self::MakeDirAll(path, mode) => words(host.make_dir_all(&at(path), *mode).await),
            Self::MakeDir(path, mode) => words(host.make_dir(&at(path), *mode).await),
            Self::RemoveDir(path) => words(host.remove_dir(&at(path)).await),
            Self::RemoveFile(path) => words(host.remove_file(&at(path)).await),
            // The first of several obstacles depends on the order of a listing.
            Self::RemoveTree(path, removal) => match host.remove_tree(&at(path), *removal).await {
                Ok(()) => "removed".to_owned(),
                Err(_) => "not all removed".to_owned(),
            },
            Self::ReadDir(path) => words(host.read_dir(&at(path)).await),
            Self::ReadFile(path) => words(host.read_file(&at(path)).await),
            Self::Write(path, mode) => words(host.write_file(&at(path), b"text", *mode).await),
            Self::Create(path, mode) => words(host.create_file(&at(path), *mode).await),
            Self::Link(target, link) => words(host.symlink(target, &at(link)).await),
            Self::Rename(from, to) => words(host.rename(&at(from), &at(to)).await),
            Self::Chmod(path, mode) => words(host.chmod(&at(path), *mode).await),
            Self::Chown(path, uid, gid) => words(host.lchown(&at(path), *uid, *gid).await),
            Self::Own(path, read_only) => {
                let change = OwnershipChange { gid: 77, read_only: *read_only };
                let progress = WalkProgress::new();
                let result = words(host.change_ownership(&at(path), change, &progress).await);
                format!("{result}, {} entries", progress.entries())
            }
            Self::Look(path) => look(host, &at(path)).await,
            Self::Resolve(path) => words(host.canonicalize(&at(path)).await),
            Self::OpenBeneath(base, sub) => {
                let opened = host.open_beneath(&at(base), sub).await;
                words(opened.map(|opened| (opened.path, shown(&opened.metadata))))
            }
            Self::BindBeneath(base, sub, target) => match host.open_beneath(&at(base), sub).await {
                Ok(opened) => words(host.bind_opened(&opened, &at(target)).await),
                Err(error) => words::<()>(Err(error)),
            },
            Self::MakeBeneath(base, sub, mode) => words(host.make_dirs_beneath(&at(base), sub, *mode).await),
            Self::Tmpfs(path) => words(host.mount(&tmpfs(at(path))).await),
            Self::Bind(from, to, recursive) => {
                words(host.bind(&Bind { recursive: *recursive, ..Bind::new(at(from), at(to)) }).await)
            }
            Self::BindReadOnly(from, to) => {
                words(bind::mount(host, &at(from), &at(to), &MountOptions::new(["ro"])).await)
            }
            Self::Unmount(path) => words(host.unmount(&at(path)).await),
            Self::CleanUp(path) => {
                words(cleanup::mount_point(host, &at(path), cleanup::Check::Extensive).await)
            }
            Self::Refs(path) => {
                let refs = lookup::mount_refs(host, &at(path)).await;
                words(refs.map(|mut refs| {
                    refs.sort();
                    refs
                }))
            }
        }
    }
}

/// A tmpfs without the sticky bit: opening files in a sticky directory depends on the machine's sysctls.
pub(crate) fn tmpfs(target: PathBuf) -> MountSpec {
    MountSpec::new("tmpfs", target, "tmpfs").with_options(MountOptions::new(["mode=755"]))
}

async fn look(host: &dyn Host, path: &Path) -> String {
    let stat = words(host.metadata(path).await.map(|there| shown(&there)));
    let link = words(host.symlink_metadata(path).await.map(|there| shown(&there)));
    let mount = words(host.mount_of(path).await.map(|mount| (mount.mount_point, mount.root, mount.options)));
    let (likely, certain) = (host.is_likely_mount_point(path).await, host.is_mount_point(path).await);
    let flags = words(host.statfs(path).await.map(|stats| (stats.magic, stats.bind_options())));
    let (reached, exists) = (host.access(path).await, lookup::path_exists(host, path).await);
    let rest =
        [words(likely), words(certain), words(reached), words(exists), words(host.read_link(path).await)];
    format!("{stat} / {link} / {mount} / {flags} / {}", rest.join(" / "))
}

/// The metadata that two kernels have in common.
fn shown(there: &Metadata) -> String {
    format!("{:?} {:o} {}:{}", there.kind, there.mode, there.uid, there.gid)
}

fn words<T: std::fmt::Debug>(result: Result<T, HostError>) -> String {
    match result {
        Ok(value) => format!("{value:?}"),
        Err(HostError::IsMountPoint { path }) => format!("mount point {}", path.display()),
        Err(HostError::StillMounted { path }) => format!("still mounted {}", path.display()),
        Err(error) => format!("errno {:?}, escape {}", error.errno(), error.is_escape()),
    }
}

pub(crate) fn sequence(random: &mut Random, length: usize) -> Vec<Order> {
    (0..length).map(|_| draw(random)).collect()
}

fn draw(random: &mut Random) -> Order {
    match random.below(48) {
        0..=5 => Order::MakeDirAll(path(random), mode(random)),
        6..=8 => Order::MakeDir(path(random), mode(random)),
        9 => Order::RemoveDir(path(random)),
        10 => Order::RemoveFile(path(random)),
        11..=12 => Order::RemoveTree(path(random), removal(random)),
        13 => Order::ReadDir(path(random)),
        14 => Order::ReadFile(path(random)),
        15..=18 => Order::Write(path(random), mode(random)),
        19 => Order::Create(path(random), mode(random)),
        20..=24 => Order::Link(target(random), path(random)),
        25..=26 => Order::Rename(path(random), path(random)),
        27 => Order::Chmod(path(random), mode(random)),
        28 => Order::Chown(path(random), id(random), id(random)),
        29 => Order::Own(path(random), random.chance(2)),
        30..=33 => Order::Look(path(random)),
        34 => Order::Resolve(path(random)),
        35..=36 => Order::OpenBeneath(path(random), target(random)),
        37 => Order::BindBeneath(path(random), target(random), path(random)),
        38..=39 => Order::MakeBeneath(path(random), target(random), mode(random)),
        40..=41 => Order::Tmpfs(path(random)),
        42 => Order::Bind(path(random), path(random), random.chance(2)),
        43 => Order::BindReadOnly(path(random), path(random)),
        44 => Order::Unmount(path(random)),
        45..=46 => Order::CleanUp(path(random)),
        _ => Order::Refs(path(random)),
    }
}

fn path(random: &mut Random) -> PathBuf {
    let depth = 1 + random.below(3);
    (0..depth).map(|_| ["a", "b", "c"][usize::try_from(random.below(3)).unwrap()]).collect()
}

/// A link's target or a path below a directory: sideways, up, out, nowhere.
fn target(random: &mut Random) -> PathBuf {
    match random.below(8) {
        0 => PathBuf::from("..").join(path(random)),
        1 => PathBuf::from("../..").join(path(random)),
        2 => PathBuf::from("/outside"),
        3 => PathBuf::from("."),
        4 => PathBuf::from("a/../b"),
        _ => path(random),
    }
}

fn mode(random: &mut Random) -> u32 {
    const MODES: [u32; 8] = [0o755, 0o750, 0o700, 0o644, 0o2775, 0o711, 0o4711, 0o600];
    MODES[usize::try_from(random.below(8)).unwrap()]
}

fn id(random: &mut Random) -> Option<u32> {
    (!random.chance(3)).then(|| u32::try_from(random.below(3)).unwrap() * 11)
}

fn removal(random: &mut Random) -> Removal {
    match random.below(3) {
        0 => Removal::Everything,
        1 => Removal::OneFilesystem,
        _ => Removal::DirsOnly,
    }
}
