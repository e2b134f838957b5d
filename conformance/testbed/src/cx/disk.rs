//! Disks of the node's machine that fail on order.

use std::ops::Range;
use std::panic::Location;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use harness::device_mapper::Manner;
use harness::device_mapper::write_log::{Cut, WriteLog};

use super::{Cx, Doing, Shared};
use crate::bed::StepError;
use crate::failure::Result;

/// A disk whose faults the case chooses. It begins as a sound one.
#[derive(Debug)]
pub struct FaultyDisk {
    shared: Rc<Shared>,
    number: usize,
    path: PathBuf,
}

/// A disk on a bus of the machine.
#[derive(Debug)]
pub struct PluggedDisk {
    shared: Rc<Shared>,
    path: PathBuf,
}

/// A disk whose sectors can go bad.
#[derive(Debug)]
pub struct SpottyDisk {
    shared: Rc<Shared>,
    path: PathBuf,
}

impl Cx {
    /// A disk that can be pulled out of the machine, with nothing on it. There is one at a time.
    #[track_caller]
    pub fn plugged_disk(&self) -> Result<PluggedDisk> {
        let doing = self.shared.begin("cx.plugged_disk()", Location::caller());
        let path = doing.done(self.shared.bed.add_plugged_disk())?;
        Ok(PluggedDisk { shared: self.shared(), path })
    }

    /// A disk whose sectors can go bad, with nothing on it. There is one at a time.
    #[track_caller]
    pub fn spotty_disk(&self) -> Result<SpottyDisk> {
        let doing = self.shared.begin("cx.spotty_disk()", Location::caller());
        let path = doing.done(self.shared.bed.add_spotty_disk())?;
        Ok(SpottyDisk { shared: self.shared(), path })
    }

    /// A disk whose faults can be chosen, with nothing on it.
    #[track_caller]
    pub fn faulty_disk(&self) -> Result<FaultyDisk> {
        self.disk_over("cx.faulty_disk()", false, Location::caller())
    }

    /// A disk with a log of all that is written to it, with nothing on it.
    #[track_caller]
    pub fn logged_disk(&self) -> Result<FaultyDisk> {
        self.disk_over("cx.logged_disk()", true, Location::caller())
    }

    /// A disk that holds what another one did when the power was cut at that moment.
    #[track_caller]
    pub fn disk_as_of(&self, log: &WriteLog, cut: Cut) -> Result<PathBuf> {
        let doing = self.shared.begin("cx.disk_as_of()", Location::caller());
        doing.done(self.shared.bed.add_disk_of(log, cut))
    }

    fn disk_over(&self, step: &str, logged: bool, at: &Location<'_>) -> Result<FaultyDisk> {
        let doing = self.shared.begin(step, at);
        let (number, path) = doing.done(self.shared.bed.add_faulty_disk(logged))?;
        Ok(FaultyDisk { shared: self.shared(), number, path })
    }
}

impl FaultyDisk {
    /// Its device node.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Changes the disk's behaviour.
    #[track_caller]
    pub fn is(&self, manner: Manner) -> Result {
        let doing = self.begin(&format!("is({manner:?})"), Location::caller());
        doing.done(self.shared.bed.with_disk(self.number, |disk| disk.behave(manner)))
    }

    /// The disk answers no request any more.
    #[track_caller]
    pub fn hangs(&self) -> Result {
        let doing = self.begin("hangs()", Location::caller());
        doing.done(self.shared.bed.with_disk(self.number, harness::device_mapper::MappedDisk::hang))
    }

    /// It answers again, also what it was asked for meanwhile.
    #[track_caller]
    pub fn goes_on(&self) -> Result {
        let doing = self.begin("goes_on()", Location::caller());
        doing.done(self.shared.bed.with_disk(self.number, harness::device_mapper::MappedDisk::go_on))
    }

    /// Puts a mark into the log of writes.
    #[track_caller]
    pub fn mark(&self, word: &str) -> Result {
        let doing = self.begin(&format!("mark(\"{word}\")"), Location::caller());
        doing.done(self.shared.bed.with_disk(self.number, |disk| disk.mark(word)))
    }

    /// Removes the disk from the machine, and reads the log of writes.
    #[track_caller]
    pub fn log(self) -> Result<WriteLog> {
        let doing = self.begin("log()", Location::caller());
        doing.done(self.shared.bed.end_logged_disk(self.number))
    }

    fn begin(&self, step: &str, location: &Location<'_>) -> Doing {
        self.shared.begin(&format!("disk.{step}"), location)
    }
}

impl PluggedDisk {
    /// Its device node.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The disk is pulled out, also while it is in use.
    #[track_caller]
    pub fn is_pulled_out(&self) -> Result {
        let doing = self.shared.begin("disk.is_pulled_out()", Location::caller());
        doing.done(self.shared.bed.with_plugged_disk(harness::module_disk::PluggedDisk::pull_out))
    }

    /// Finds that the disk is in use: its kernel module cannot be unloaded.
    #[track_caller]
    pub fn is_held(&self) -> Result {
        self.goes("disk.is_held()", false, Location::caller())
    }

    /// Finds that the disk is not in use: its kernel module can be unloaded.
    #[track_caller]
    pub fn is_let_go(&self) -> Result {
        self.goes("disk.is_let_go()", true, Location::caller())
    }

    fn goes(&self, step: &str, expected: bool, at: &Location<'_>) -> Result {
        let doing = self.shared.begin(step, at);
        let went = self.shared.bed.with_plugged_disk(harness::module_disk::PluggedDisk::unload);
        doing.done(went.and_then(|went| match (went, expected) {
            (true, false) => {
                Err(broken("The disk's driver could be taken out of the kernel: the disk is not in use."))
            }
            (false, true) => {
                Err(broken("The disk's driver cannot be taken out of the kernel: the disk is in use."))
            }
            _ => Ok(()),
        }))
    }
}

impl SpottyDisk {
    /// Its device node.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// These sectors can be neither read nor written from now on.
    #[track_caller]
    pub fn is_bad_at(&self, sectors: Range<u64>) -> Result {
        let doing = self.shared.begin(&format!("disk.is_bad_at({sectors:?})"), Location::caller());
        doing.done(self.shared.bed.with_spotty_disk(|disk| disk.spoil(sectors)))
    }

    /// Makes the sectors readable again.
    #[track_caller]
    pub fn is_good_at(&self, sectors: Range<u64>) -> Result {
        let doing = self.shared.begin(&format!("disk.is_good_at({sectors:?})"), Location::caller());
        doing.done(self.shared.bed.with_spotty_disk(|disk| disk.mend(sectors)))
    }
}

fn broken(said: &str) -> StepError {
    StepError::Broken(vec![said.to_owned()])
}
