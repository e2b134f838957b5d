//! Resources that the driver still holds: loop devices and processes after its last NodeUnstageVolume and before its first
//! DeleteVolume, which may remove them with the volume; files and descriptors after its last DeleteVolume. All of them
//! before the driver ends.

use std::os::linux::fs::MetadataExt;
use std::time::{Duration, Instant};

use harness::census::process::{self, Process};
use harness::journal::Thing;
use harness::loop_device::table::{self, BoundLoop};
use harness::testbed::OtherNode;
use nix::unistd::{Pid, getpgid};

use super::{Bed, remains};

/// The time for a released device to be detached: the kernel does so after the last close.
const DETACH: Duration = Duration::from_secs(2);

/// The driver's loop devices and processes before its first NodeStageVolume.
#[derive(Debug, Default)]
pub(super) struct Before {
    /// Attached when the driver started: a pool that all volumes lie in.
    standing: Vec<BoundLoop>,
    /// Attached by CreateVolume, and so detached by DeleteVolume; or disks of the case itself.
    loops: Vec<BoundLoop>,
    processes: Vec<Process>,
}

/// The driver's leftovers after the last NodeUnstageVolume, and of deleted volumes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Held {
    /// Loop devices, a line each.
    pub loops: Vec<String>,
    /// Processes, a line each.
    pub processes: Vec<String>,
    /// Loop devices that CreateVolume had attached and that are there after all volumes were deleted.
    pub devices: Vec<String>,
    /// Files in the driver's directory that belonged to a deleted volume.
    pub files: Vec<String>,
    /// Descriptors of the driver's processes that lead to a deleted volume.
    pub descriptors: Vec<String>,
}

impl Before {
    /// Forgets loop devices that a reboot has taken: one that is attached afterwards is another.
    pub(super) fn forget_loops(&mut self, gone: &[BoundLoop]) {
        self.loops.retain(|known| !gone.iter().any(|gone| gone.is_same(known)));
    }
}

impl Bed {
    /// Remembers the processes of a driver that has just answered its first questions.
    pub(super) fn remember_driver(&self) {
        let (processes, standing) = (self.driver_processes(), self.driver_loops());
        let mut before = self.made.before.borrow_mut();
        (before.processes, before.standing) = (processes, standing);
    }

    /// The loop devices of this case that are not the harness's own.
    pub(super) fn driver_loops(&self) -> Vec<BoundLoop> {
        if self.foreign.is_some() {
            return Vec::new();
        }
        let machine = self.machine.borrow().as_ref().and_then(|machine| machine.path().metadata().ok());
        let machine = machine.map(|found| found.st_dev());
        let bound = table::bound();
        let of_state = self.failing_device();
        let is_ours = |device| self.devices_of_driver.contains(&device) || Some(device) == of_state;
        let mut loops = table::lying_on(&bound, |bound| is_ours(bound.device));
        // A lock of the node is a loop over the driver's device.
        loops.retain(|bound| Some(bound.device) != machine && bound.over.is_none());
        loops
    }

    /// Remembers the loop devices that CreateVolume or the case attached; `earlier` are those before it.
    pub(super) fn remember_loops(&self, earlier: &[BoundLoop]) {
        let made =
            self.driver_loops().into_iter().filter(|bound| !earlier.iter().any(|known| known.is_same(bound)));
        self.made.before.borrow_mut().loops.extend(made);
    }

    /// Finds the resources that are held after everything was unstaged. Waits a moment for those being released.
    pub(super) async fn look_at_driver(&self) {
        let end = Instant::now() + DETACH;
        let held = loop {
            let held = self.held_by_driver();
            if held == Held::default() || Instant::now() > end {
                break held;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        *self.made.held.borrow_mut() = held;
    }

    /// Finds the leftovers of these volumes after all were deleted. Waits a moment for those being removed.
    pub(super) async fn look_at_remains(&self, handles: &[String]) {
        let deleted = self.made.deleted.borrow().clone();
        let handles = remains::identifying(handles.iter().chain(deleted.iter()));
        if self.foreign.is_some() {
            return;
        }
        let end = Instant::now() + DETACH;
        loop {
            let (files, descriptors) = (
                remains::files(&self.layout.driver_state(), &handles, &self.journal.backings()),
                self.open_remains(&handles),
            );
            let devices = self.devices_of_deleted();
            let is_clean = files.is_empty() && descriptors.is_empty() && devices.is_empty();
            {
                let mut held = self.made.held.borrow_mut();
                (held.files, held.descriptors, held.devices) = (files, descriptors, devices);
            }
            if is_clean || Instant::now() > end {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The devices that CreateVolume has attached and DeleteVolume should have detached.
    fn devices_of_deleted(&self) -> Vec<String> {
        let (before, own) = (self.made.before.borrow(), self.disks.loop_numbers());
        let made =
            self.driver_loops().into_iter().filter(|now| before.loops.iter().any(|made| made.is_same(now)));
        let made = made.filter(|now| !before.standing.iter().any(|known| known.is_same(now)));
        let made = made.filter(|now| !own.contains(&now.number));
        made.map(|bound| format!("loop{} on {}", bound.number, bound.backing.display())).collect()
    }

    fn open_remains(&self, handles: &[&str]) -> Vec<String> {
        let (processes, state) = (self.driver_processes(), self.layout.driver_state());
        let backings = self.journal.backings();
        let lines = processes.iter().flat_map(|process| {
            let open = remains::open(process.pid, &state, handles, &backings).into_iter();
            open.map(move |path| format!("`{}` in {process}", path.display()))
        });
        lines.collect()
    }

    /// The driver's leftovers after the last NodeUnstageVolume.
    pub fn driver_holds(&self) -> Held {
        self.made.held.borrow().clone()
    }

    fn held_by_driver(&self) -> Held {
        let before = self.made.before.borrow();
        let known = || before.loops.iter().chain(&before.standing);
        let new = |bound: &&BoundLoop| !known().any(|known| known.is_same(bound));
        let loops = self.driver_loops();
        let line = |bound: &BoundLoop| {
            let during = self.during(Thing::Loop(bound.number, bound.sequence));
            format!("loop{} on {}{during}", bound.number, bound.backing.display())
        };
        let processes = self.driver_processes();
        // A driver that was started again has other processes, so they cannot be compared.
        let is_the_same = before.processes.iter().any(|known| processes.contains(known));
        let started =
            processes.iter().filter(|now| is_the_same && !now.zombie && !before.processes.contains(now));
        Held {
            devices: Vec::new(),
            files: Vec::new(),
            descriptors: Vec::new(),
            loops: loops.iter().filter(new).map(line).collect(),
            processes: started
                .map(|process| format!("{process}{}", self.during(Thing::Process(process.pid))))
                .collect(),
        }
    }

    /// `, since NodeStageVolume of data`, if a call is known during which it appeared.
    fn during(&self, thing: Thing) -> String {
        let call = self.journal.appeared(thing);
        call.map(|call| format!(", since {} of {}", call.method, call.volume)).unwrap_or_default()
    }

    pub(super) fn driver_processes(&self) -> Vec<Process> {
        let members = self.cgroup().map(harness::cgroup::Cgroup::members).unwrap_or_default();
        let others = self.other().map(OtherNode::driver_groups).unwrap_or_default();
        let is_others = |pid: &i32| {
            let group = getpgid(Some(Pid::from_raw(*pid)));
            group.is_ok_and(|group| others.contains(&group.as_raw()))
        };
        let first = members.into_iter().filter(|pid| !is_others(pid));
        first.filter_map(process::get).collect()
    }
}
