//! Whether the machine had enough of everything while a case ran: a case that broke where it had not says nothing of
//! the driver.
//!
//! A limit counts only where it is seen to be reached: a word in an error alone may be the driver's.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::statvfs::statvfs;

use super::lane::Ended;
use crate::event::CaseReport;

/// With fewer bytes free nothing can be kept any more.
const FULL: u64 = 64 << 10;

/// A user who may start fewer processes than this beside those that run may well have come to the limit.
const FEW: u64 = 256;

/// The messages of a process that could not be started.
const NO_PROCESS: [&str; 3] = ["Resource temporarily unavailable", "os error 11)", "EAGAIN"];

/// The kernel's messages about a processor without progress.
const STALLS: [&str; 2] = ["kernel stall: ", "hung task: "];

/// The resources of the machine that a run uses, as they were at its start.
#[derive(Debug)]
pub(super) struct Machine {
    /// Directories that are written to, and how each is chosen.
    places: Vec<(PathBuf, &'static str)>,
    groups: Vec<PathBuf>,
    forks_refused: u64,
    killed: u64,
}

impl Machine {
    pub(super) fn look(report: &Path, ledger: &Path) -> Self {
        let places = vec![
            (report.to_owned(), "choose another one with --report"),
            (ledger.to_owned(), "make room there"),
            (std::env::temp_dir(), "make room there or set TMPDIR"),
        ];
        let said = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let groups = groups(&said);
        let (forks_refused, killed) = (forks_refused(&groups), killed(&groups));
        Self { places, groups, forks_refused, killed }
    }

    /// The resource that the machine had too little of, with a hint; `None` if it had enough.
    pub(super) fn lacked(&self, report: &CaseReport, ended: Option<&io::Result<Ended>>) -> Option<String> {
        let not_started = match ended {
            Some(Err(error)) => error.raw_os_error().and_then(of_error),
            Some(Ok(Ended::Lost(why))) => {
                Some(format!("the guest of the case was lost: {why}; run it again with fewer --jobs"))
            }
            Some(Ok(Ended::Late(why))) => Some(format!(
                "the guest of the case was lost: {why}; run it again with fewer --jobs, or a longer --boot-timeout"
            )),
            _ => None,
        };
        not_started
            .or_else(|| self.full_disk())
            .or_else(|| self.group_limit())
            .or_else(|| too_many_processes(report))
    }

    fn full_disk(&self) -> Option<String> {
        self.places.iter().find_map(|(place, advice)| {
            let disk = statvfs(place).ok()?;
            let free = disk.blocks_available() * disk.fragment_size();
            let place = place.display();
            (free < FULL)
                .then(|| format!("the disk is full: nothing more can be kept in `{place}`; {advice}"))
        })
    }

    fn group_limit(&self) -> Option<String> {
        let advice = "give the control group of this run more, or use fewer --jobs";
        if forks_refused(&self.groups) > self.forks_refused {
            return Some(format!(
                "too few processes: the control group of this run allows no more; {advice}"
            ));
        }
        let more = killed(&self.groups) > self.killed;
        more.then(|| {
            format!(
                "too little memory: the kernel killed a process in the control group of this run; {advice}"
            )
        })
    }
}

/// The complaint of a guest's kernel about a stalled machine, if that broke the case.
pub(super) fn stalled(kernel: &[String]) -> Option<String> {
    let stall = kernel.iter().find(|line| STALLS.iter().any(|mark| line.starts_with(mark)))?;
    Some(format!(
        "the machine was overloaded: a processor of the guest stood still ({stall}); run it again with fewer --jobs \
         or where KVM works"
    ))
}

/// The resource that is missing if a worker cannot be started.
fn of_error(errno: i32) -> Option<String> {
    let (what, advice) = match Errno::from_raw(errno) {
        Errno::EAGAIN => ("too few processes", "raise `ulimit -u` or the limit of the control group"),
        Errno::ENOMEM => ("too little memory", "use fewer --jobs"),
        Errno::ENOSPC | Errno::EDQUOT => ("the disk is full", "make room in the directory of the report"),
        Errno::EMFILE | Errno::ENFILE => ("too few open files", "raise `ulimit -n`"),
        _ => return None,
    };
    Some(format!("{what}: the case could not be started ({}); {advice}", Errno::from_raw(errno).desc()))
}

/// Whether the report or a log has the error that no process could be started, and this user is near the limit.
fn too_many_processes(report: &CaseReport) -> Option<String> {
    // The limit does not bind root.
    if nix::unistd::geteuid().is_root() {
        return None;
    }
    let limit = processes(&fs::read_to_string("/proc/self/limits").ok()?)?;
    let has_error = |text: &str| NO_PROCESS.iter().any(|words| text.contains(words));
    let causes = report.breakage.iter().flat_map(|breakage| &breakage.cause);
    let sentences = report.findings.iter().map(|finding| &finding.sentence);
    let logs = ["driver.log", "manager.log", "worker.log"].into_iter();
    let logs = logs.filter_map(|log| report.logs.as_ref().map(|logs| logs.join(log)));
    let is_reported = causes.chain(sentences).any(|text| has_error(text))
        || logs.filter_map(|log| fs::read(log).ok()).any(|text| has_error(&String::from_utf8_lossy(&text)));
    (is_reported && limit < FEW.saturating_add(tasks_of_this_user()))
        .then(|| format!("too few processes: this user may have {limit} (RLIMIT_NPROC); raise `ulimit -u`"))
}

/// The soft limit of `Max processes`; nothing where there is none.
fn processes(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max processes"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The number of this user's processes and threads.
fn tasks_of_this_user() -> u64 {
    use std::os::unix::fs::MetadataExt;
    let uid = nix::unistd::getuid().as_raw();
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mine = all.filter(|entry| entry.metadata().is_ok_and(|process| process.uid() == uid));
    let threads = mine.filter_map(|entry| Some(fs::read_dir(entry.path().join("task")).ok()?.count()));
    threads.map(|count| count as u64).sum()
}

/// The control groups that bind this process: its own, and those above it, in both hierarchies.
fn groups(said: &str) -> Vec<PathBuf> {
    let mut groups = Vec::new();
    for line in said.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let top = Path::new("/sys/fs/cgroup");
        let top = match controllers {
            "" => top.to_owned(),
            "pids" | "memory" => top.join(controllers),
            _ => continue,
        };
        let own = top.join(path.trim_start_matches('/'));
        groups.extend(own.ancestors().take_while(|group| group.starts_with(&top)).map(Path::to_owned));
    }
    groups
}

fn forks_refused(groups: &[PathBuf]) -> u64 {
    count(groups, &["pids.events.local", "pids.events"], "max")
}

fn killed(groups: &[PathBuf]) -> u64 {
    // The killer of the whole machine counts there, too, and not as a limit of the group.
    count(groups, &["memory.events.local"], "oom") + count(groups, &["memory.events.local"], "oom_kill")
}

/// The sum of a counter over these control groups. Each has one of the files.
fn count(groups: &[PathBuf], files: &[&str], word: &str) -> u64 {
    let text = |group: &PathBuf| files.iter().find_map(|file| fs::read_to_string(group.join(file)).ok());
    groups.iter().filter_map(text).filter_map(|text| counted(&text, word)).sum()
}

fn counted(text: &str, word: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(word)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Status;

    #[test]
    fn worker_that_cannot_be_started_is_the_machines() {
        let machine = Machine::look(Path::new("/"), Path::new("/"));
        let report = CaseReport::sample("a", Status::Error);
        for (errno, words) in [
            (libc::EAGAIN, "too few processes"),
            (libc::ENOMEM, "too little memory"),
            (libc::ENOSPC, "the disk is full"),
            (libc::EMFILE, "ulimit -n"),
        ] {
            let ended = Err(io::Error::from_raw_os_error(errno));
            let said = machine.lacked(&report, Some(&ended)).expect("it is a limit");
            assert!(said.contains(words), "{said}");
        }
        assert_eq!(of_error(libc::ENOENT), None);
    }

    #[test]
    fn more_time_to_boot_is_advised_for_late_guests_only() {
        let machine = Machine::look(Path::new("/"), Path::new("/"));
        let report = CaseReport::sample("a", Status::Error);
        for (ended, is_late) in [(Ended::Lost("x".into()), false), (Ended::Late("x".into()), true)] {
            let said = machine.lacked(&report, Some(&Ok(ended))).expect("the guest is lost");
            assert!(said.contains("fewer --jobs") && said.contains("--boot-timeout") == is_late, "{said}");
        }
    }

    #[test]
    fn guest_that_stalls_is_the_machines_and_one_that_crashes_is_not() {
        let line = |text: &str| vec![text.to_owned()];
        assert!(stalled(&line("kernel stall: rcu: INFO: rcu_preempt detected stalls")).is_some());
        assert_eq!(stalled(&line("kernel bug: BUG: kernel NULL pointer dereference")), None);
    }

    #[test]
    fn groups_are_found_in_both_hierarchies_with_those_above() {
        let found = groups("4:memory:/a/b\n3:cpuset:/a\n0::/x\n");
        let found: Vec<_> = found.iter().map(|group| group.display().to_string()).collect();
        let below =
            |names: &[&str]| names.iter().map(|name| format!("/sys/fs/cgroup{name}")).collect::<Vec<_>>();
        assert_eq!(found, below(&["/memory/a/b", "/memory/a", "/memory", "/x", ""]));
    }

    #[test]
    fn limit_of_processes_is_read_as_the_kernel_writes_it() {
        let line = "Max cpu time    unlimited   unlimited   seconds\nMax processes             30     63432    processes\n";
        assert_eq!(processes(line), Some(30));
        assert_eq!(
            processes("Max processes             unlimited            unlimited            processes\n"),
            None
        );
    }

    #[test]
    fn events_of_a_group_are_read_by_their_word() {
        assert_eq!(counted("low 1\noom 2\noom_kill 3\n", "oom"), Some(2));
        assert_eq!(counted("max 7\n", "max"), Some(7));
        assert_eq!(counted("", "max"), None);
    }
}
