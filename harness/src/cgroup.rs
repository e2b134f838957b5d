//! Limits for a driver's use of the machine: a control group, as a guard.
//!
//! A driver that forks without end or uses up memory reaches its own limit and not the machine's. Supports both
//! versions of control groups. Writes below `/sys/fs/cgroup` and nowhere else.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

mod disks;
mod makers;

pub(crate) mod device_rules;

use makers::Makers;

use crate::guard::{self, CloseError, Guard};
use crate::observe::{self, Device, Mount};
use crate::wait::Deadline;

/// The time limit for killed processes to leave a group.
const EMPTY: Duration = Duration::from_secs(5);

/// The beginning of the names of this program's groups.
const OWN: &str = "volproof-";

/// The number of controllers that a group of version 1 has directories for.
const CONTROLLERS: usize = 2;

/// Limits of a driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Processes and threads.
    pub tasks: u64,
    /// Bytes of memory; data written to memory file systems counts.
    pub memory: u64,
}

/// The number of times that each limit was reached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Hits {
    /// A process or a thread was refused.
    pub tasks: u64,
    /// A process was killed for its memory.
    pub memory: u64,
}

/// Why no control group can be made.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    /// No suitable control group hierarchy is mounted.
    #[error("cannot find control groups with limits for processes and memory")]
    Absent,
    /// A group could not be created, or its limits not be set.
    #[error("cannot limit a driver in `{path}`")]
    Refused {
        /// The path at which it was tried.
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// A control group. Closing it kills the processes that are still in it.
#[derive(Debug)]
pub struct Cgroup {
    limits: Limits,
    version: Version,
    /// One, or in version 1 one for each controller. In version 1 a group of version 2 may follow, for devices.
    dirs: Vec<PathBuf>,
    /// Whether its processes can use none of the machine's disks.
    disks_limited: bool,
    /// The machine's other groups when it was made.
    others: BTreeSet<PathBuf>,
    /// The groups that this PID namespace has made since, as far as the kernel reports the maker.
    makers: Option<Makers>,
}

/// Control groups beside a driver's own that were made since.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Beside {
    pub groups: Vec<PathBuf>,
    /// Whether they were made by a process of this PID namespace. Otherwise any program of the machine can have made them.
    pub by_us: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    /// A hierarchy for each controller.
    One,
    /// One hierarchy for all.
    Two,
}

/// Whether a directory is a control group, of either version.
pub(crate) fn is_cgroup(dir: &Path) -> bool {
    use nix::sys::statfs::{CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC, statfs};
    statfs(dir)
        .is_ok_and(|found| [CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC].contains(&found.filesystem_type()))
}

/// The directories of groups of this name on this machine, to be written to the ledger before one is created.
///
/// # Errors
/// When there is no place where one could be made.
pub fn places(name: &str) -> Result<Vec<PathBuf>, CgroupError> {
    find().map(|(_, tops)| tops.into_iter().map(|top| top.join(name)).collect())
}

impl Cgroup {
    /// Makes one below the top of the machine's.
    ///
    /// # Errors
    /// When there are no control groups, or this user may not make one.
    pub fn create(name: &str, limits: Limits) -> Result<Cgroup, CgroupError> {
        let (version, tops) = find()?;
        if version == Version::Two {
            // Already so on most machines; where it is not and cannot be made so, the limits below will say it.
            let _ = fs::write(tops[0].join("cgroup.subtree_control"), "+pids +memory");
        }
        let dirs: Vec<PathBuf> = tops.iter().map(|top| top.join(name)).collect();
        for dir in &dirs {
            fs::create_dir(dir).map_err(refused(dir))?;
        }
        let makers = Makers::watch(hierarchies().into_iter().map(|mount| mount.target));
        let cgroup = Cgroup { limits, version, dirs, disks_limited: false, others: others(), makers };
        cgroup.limit()?;
        Ok(cgroup)
    }

    /// What it limits to.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Lets its processes use no disks but loop devices, mapped devices over those, and these.
    ///
    /// # Errors
    /// When the kernel cannot be asked to refuse the others.
    pub fn limit_disks(&mut self, opened: &[Device]) -> Result<(), CgroupError> {
        let dir = match self.version {
            Version::Two => self.dirs.first(),
            Version::One => self.dirs.get(CONTROLLERS),
        };
        let dir = dir.ok_or(CgroupError::Absent)?;
        let group = File::open(dir).map_err(refused(dir))?;
        device_rules::limit(&group, &disks::rules(opened)).map_err(refused(dir))?;
        self.disks_limited = true;
        Ok(())
    }

    /// Whether its processes can use none of the machine's disks.
    pub fn disks_are_limited(&self) -> bool {
        self.disks_limited
    }

    /// The files into which a process with one thread writes `0` to move itself into the group.
    ///
    /// # Errors
    /// When one cannot be opened.
    pub fn entrances(&self) -> io::Result<Vec<File>> {
        self.dirs.iter().map(|dir| entrance(dir)).collect()
    }

    /// The processes that are in the group.
    pub fn members(&self) -> Vec<i32> {
        let listed = self.dirs.first().and_then(|dir| fs::read_to_string(dir.join("cgroup.procs")).ok());
        listed.unwrap_or_default().lines().filter_map(|line| line.parse().ok()).collect()
    }

    /// The limits that were reached so far.
    pub fn hits(&self) -> Hits {
        let [pids, memory] = self.of_each();
        // These counters say whether the kernel killed because of this group's limit, and not the machine's.
        let (file, count) = match self.version {
            Version::One => ("memory.oom_control", "oom_kill"),
            Version::Two => ("memory.events", "oom"),
        };
        Hits { tasks: counted(&pids.join("pids.events"), "max"), memory: counted(&memory.join(file), count) }
    }

    /// The groups beside it that were made since by this PID namespace.
    ///
    /// If the kernel does not report the maker of a group, those that have no process of another program. In version 1
    /// a group of one name may be in several hierarchies.
    pub fn made_beside(&self) -> Beside {
        let new = others().into_iter().filter(|group| !self.others.contains(group));
        let groups = match self.makers.as_ref().map(Makers::made) {
            Some(made) => new.filter(|group| made.contains(group)).collect(),
            None => new.filter(|group| !has_strangers(group)).collect(),
        };
        Beside { groups, by_us: self.makers.is_some() }
    }

    fn limit(&self) -> Result<(), CgroupError> {
        let [pids, memory] = self.of_each();
        let limit = if self.version == Version::One { "memory.limit_in_bytes" } else { "memory.max" };
        let write = |path: PathBuf, value: u64| fs::write(&path, value.to_string()).map_err(refused(&path));
        write(pids.join("pids.max"), self.limits.tasks)?;
        write(memory.join(limit), self.limits.memory)?;
        // Errors are ignored: not every kernel has swap, or accounts for it.
        let _ = match self.version {
            Version::One => {
                fs::write(memory.join("memory.memsw.limit_in_bytes"), self.limits.memory.to_string())
            }
            Version::Two => fs::write(memory.join("memory.swap.max"), "0"),
        };
        Ok(())
    }

    /// The directories of the controllers for processes and for memory.
    fn of_each(&self) -> [&Path; 2] {
        let memory = if self.version == Version::One { CONTROLLERS - 1 } else { 0 };
        [&self.dirs[0], &self.dirs[memory]]
    }
}

impl Guard for Cgroup {
    fn close(mut self) -> Result<(), CloseError> {
        remove(&std::mem::take(&mut self.dirs))
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let dirs = std::mem::take(&mut self.dirs);
        guard::undo("a control group", || remove(&dirs));
    }
}

/// Kills the processes in these groups and removes the groups, with the groups that their processes have made below. A
/// missing group counts as removed.
///
/// # Errors
/// When one stays.
pub fn remove(dirs: &[PathBuf]) -> Result<(), CloseError> {
    for dir in dirs {
        remove(&below(dir))?;
        let gone = || {
            kill_all(dir);
            match fs::remove_dir(dir) {
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => None,
                Err(error) if error.kind() == io::ErrorKind::NotFound => Some(Ok(())),
                done => Some(done),
            }
        };
        Deadline::after(EMPTY)
            .until(format_args!("`{}` still has processes", dir.display()), gone)?
            .map_err(|source| CloseError::Os { what: format!("remove `{}`", dir.display()), source })?;
    }
    Ok(())
}

/// The groups directly below a group, or below the top of a hierarchy.
fn below(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let groups = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    groups.map(|entry| entry.path()).collect()
}

/// The groups below the top of each hierarchy that are not this program's.
fn others() -> BTreeSet<PathBuf> {
    let is_own =
        |group: &PathBuf| group.file_name().is_some_and(|name| name.to_string_lossy().starts_with(OWN));
    let groups = hierarchies().into_iter().flat_map(|mount| below(&mount.target));
    groups.filter(|group| !is_own(group)).collect()
}

/// Whether a group, or one below it, has a process that this PID namespace cannot see.
fn has_strangers(dir: &Path) -> bool {
    let listed = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    listed.lines().any(|pid| pid == "0") || below(dir).iter().any(|group| has_strangers(group))
}

fn kill_all(dir: &Path) {
    for pid in fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default().lines() {
        // Zero is a process that this namespace cannot see.
        let Some(pid) = pid.parse().ok().filter(|pid| *pid > 0) else { continue };
        let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL);
    }
}

/// The file into which a process with one thread writes `0` to move itself into a group.
///
/// In version 1 the one for threads: to move a process as a whole, the kernel waits until no thread is being made anywhere.
///
/// # Errors
/// When it cannot be opened.
pub(crate) fn entrance(dir: &Path) -> io::Result<File> {
    let open = |name| File::options().write(true).open(dir.join(name));
    open("tasks").or_else(|_| open("cgroup.procs"))
}

/// Moves the calling process into the groups behind these files. Safe between fork and exec: it only writes.
///
/// # Errors
/// When the kernel refuses it.
pub(crate) fn enter(entrances: &[File]) -> io::Result<()> {
    entrances.iter().try_for_each(|mut file| file.write_all(b"0"))
}

/// Makes the kernel ready for processes that enter a group of version 2: the first one waits until all processors have
/// passed a moment of rest, ten milliseconds or more, and those soon after it do not. Returns at once.
pub fn warm_up() {
    let enter_own = || {
        let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
        let own = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
        // This process stays where it is.
        fs::write(unified()?.join(own).join("cgroup.procs"), "0").ok()
    };
    // Without the thread, or the right to write there, the first one waits.
    drop(std::thread::Builder::new().name("warm-up".to_owned()).spawn(enter_own));
}

/// The mount point of control groups of version 2, even without controllers.
pub(crate) fn unified() -> Option<PathBuf> {
    hierarchies().into_iter().find(|mount| mount.fstype == "cgroup2").map(|mount| mount.target)
}

/// The paths of a group of this name in every hierarchy: a runtime makes one in each.
pub fn everywhere(name: &str) -> Vec<PathBuf> {
    hierarchies().into_iter().map(|mount| mount.target.join(name)).collect()
}

/// The version of the machine's control groups, and the directories below which groups are made.
fn find() -> Result<(Version, Vec<PathBuf>), CgroupError> {
    let mounts = hierarchies();
    let of_controller = |controller: &str| {
        let has = |options: &str| options.split(',').any(|option| option == controller);
        let mut mounts = mounts.iter();
        mounts
            .find(|mount| mount.fstype == "cgroup" && has(&mount.super_opts))
            .map(|mount| mount.target.clone())
    };
    let unified = mounts.iter().find(|mount| mount.fstype == "cgroup2").map(|mount| mount.target.clone());
    let controllers = |top: &PathBuf| fs::read_to_string(top.join("cgroup.controllers")).unwrap_or_default();
    let limits = |top: &PathBuf| {
        let all = controllers(top);
        ["pids", "memory"].iter().all(|wanted| all.split_ascii_whitespace().any(|there| there == *wanted))
    };
    match (unified.filter(limits), of_controller("pids"), of_controller("memory")) {
        (Some(top), ..) => Ok((Version::Two, vec![top])),
        (None, Some(pids), Some(memory)) => {
            // Without controllers, but devices are asked about by a program and need none.
            let unified =
                mounts.iter().find(|mount| mount.fstype == "cgroup2").map(|mount| mount.target.clone());
            Ok((Version::One, [pids, memory].into_iter().chain(unified).collect()))
        }
        _ => Err(CgroupError::Absent),
    }
}

/// The mounts of both versions.
fn hierarchies() -> Vec<Mount> {
    let mut mounts = observe::mounts_of("thread-self").unwrap_or_default();
    mounts.retain(|mount| matches!(mount.fstype.as_str(), "cgroup" | "cgroup2"));
    mounts
}

/// The number behind a word in a file of such pairs.
fn counted(file: &Path, word: &str) -> u64 {
    let text = fs::read_to_string(file).unwrap_or_default();
    let value = |line: &str| line.strip_prefix(word)?.strip_prefix(' ')?.trim().parse().ok();
    text.lines().find_map(value).unwrap_or_default()
}

fn refused(path: &Path) -> impl FnOnce(io::Error) -> CgroupError + use<> {
    let path = path.to_owned();
    move |source| CgroupError::Refused { path, source }
}
