//! The loop devices and processes of the machine, looked at around each call to a driver. Reads `/proc` and sysfs.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use crate::listing::list;
use crate::loop_device::table;

/// Something of the machine that a call can leave behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Thing {
    /// An attachment of a loop device: its number, and the sequence that distinguishes it from others.
    Loop(u32, Option<u64>),
    Process(i32),
}

/// All of them at a moment.
#[derive(Debug, Clone)]
pub(super) struct Things {
    loops: BTreeSet<Thing>,
    processes: Arc<Processes>,
}

/// The processes at a moment; some may have ended since.
#[derive(Debug)]
struct Processes {
    /// The process that had been started last; `None` where the kernel does not say so.
    newest: Option<u32>,
    all: BTreeSet<Thing>,
}

impl Things {
    /// Those of now. `before` saves a listing of the processes, if none has been started since.
    pub(super) fn now(before: Option<&Self>) -> Self {
        let loops = table::numbers_with_content().into_iter();
        let loops = loops.map(|number| Thing::Loop(number, table::sequence(number))).collect();
        // First: one that is started while they are listed is newer.
        let newest = newest();
        let known = before.map(|before| &before.processes);
        let known = known.filter(|known| newest.is_some() && known.newest == newest);
        let processes = known.cloned().unwrap_or_else(|| Arc::new(Processes { newest, all: processes() }));
        Self { loops, processes }
    }

    /// Those that were not there `before`.
    pub(super) fn since(&self, before: &Self) -> BTreeSet<Thing> {
        let mut new: BTreeSet<Thing> = self.loops.difference(&before.loops).copied().collect();
        if !Arc::ptr_eq(&self.processes, &before.processes) {
            new.extend(self.processes.all.difference(&before.processes.all));
        }
        new
    }
}

fn processes() -> BTreeSet<Thing> {
    let pids = list(Path::new("/proc")).into_iter();
    pids.filter_map(|entry| entry.name.to_str()?.parse().ok().map(Thing::Process)).collect()
}

/// The number of the process or thread that was started last, from the end of one line of the kernel's.
fn newest() -> Option<u32> {
    static TELLS: OnceLock<bool> = OnceLock::new();
    TELLS.get_or_init(is_of_our_processes).then_some(())?;
    let mut line = [0; 128];
    let length = File::open(LOAD).ok()?.read(&mut line).ok()?;
    str::from_utf8(&line[..length]).ok()?.trim_end().rsplit(' ').next()?.parse().ok()
}

const LOAD: &str = "/proc/loadavg";

/// Whether the line is the kernel's own, and `/proc` lists the processes that our numbers are given to.
fn is_of_our_processes() -> bool {
    let is_proc = |file: File| {
        rustix::fs::fstatfs(file).is_ok_and(|found| found.f_type == rustix::fs::PROC_SUPER_MAGIC)
    };
    let own = std::fs::read_link("/proc/self").ok();
    let is_us = own.is_some_and(|own| own.to_str() == Some(&std::process::id().to_string()));
    is_us && File::open(LOAD).is_ok_and(is_proc)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn process_that_was_started_meanwhile_is_new() {
        assert!(newest().is_some());
        let before = Things::now(None);
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let after = Things::now(Some(&before));
        let found = after.since(&before).contains(&Thing::Process(child.id().cast_signed()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(found);
        // Threads of other tests take numbers, too.
        let same = (0..1000).any(|_| {
            let before = Things::now(Some(&after));
            Arc::ptr_eq(&Things::now(Some(&before)).processes, &before.processes)
        });
        assert!(same, "the processes are listed each time");
    }
}
