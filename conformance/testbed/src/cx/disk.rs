//! Disks of the node's machine that a case can make fail.

use std::ops::Range;
use std::panic::Location;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use harness::device_mapper::Manner;
use harness::device_mapper::write_log::{Cut, WriteLog};

use super::{Cx, Doing, Shared};
use crate::bed::StepError;
use crate::failure::Result;

/// A disk whose faults the case chooses. At first it has none.
#[derive(Debug)]
pub struct FaultyDisk {
    shared: Rc<Shared>,
    number: usize,
    path: PathBuf,
}

/// A disk that can be pulled out of the machine.
#[derive(Debug)]
pub struct PluggedDisk {
    shared: Rc<Shared>,
    path: PathBuf,
}

/// A disk whose sectors the case can make bad.
#[derive(Debug)]
pub struct SpottyDisk {
    shared: Rc<Shared>,
    path: PathBuf,
}

impl Cx {
    /// An empty disk that can be pulled out of the machine. A case has at most one.
    #[track_caller]
    pub fn plugged_disk(&self) -> Result<PluggedDisk> {
        let doing = self.shared.begin("cx.plugged_disk()", Location::caller());
        let path = doing.done(self.shared.bed.add_plugged_disk())?;
        Ok(PluggedDisk { shared: self.shared(), path })
    }

    /// An empty disk whose sectors can be made bad. A case has at most one.
    #[track_caller]
    pub fn spotty_disk(&self) -> Result<SpottyDisk> {
        let doing = self.shared.begin("cx.spotty_disk()", Location::caller());
        let path = doing.done(self.shared.bed.add_spotty_disk())?;
        Ok(SpottyDisk { shared: self.shared(), path })
    }

    /// An empty disk whose faults can be chosen.
    #[track_caller]
    pub fn faulty_disk(&self) -> Result<FaultyDisk> {
        self.mapped_disk("cx.faulty_disk()", false, Location::caller())
    }

    /// An empty disk that logs every write to it.
    #[track_caller]
    pub fn logged_disk(&self) -> Result<FaultyDisk> {
        self.mapped_disk("cx.logged_disk()", true, Location::caller())
    }

    /// A new disk with the content that another one, by the log of its writes, would have after a power cut.
    #[track_caller]
    pub fn disk_as_of(&self, log: &WriteLog, cut: Cut) -> Result<PathBuf> {
        let doing = self.shared.begin("cx.disk_as_of()", Location::caller());
        doing.done(self.shared.bed.add_disk_of(log, cut))
    }

    fn mapped_disk(&self, step: &str, logged: bool, at: &Location<'_>) -> Result<FaultyDisk> {
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

    /// Lets the disk hang: it answers no request.
    #[track_caller]
    pub fn hangs(&self) -> Result {
        let doing = self.begin("hangs()", Location::caller());
        doing.done(self.shared.bed.with_disk(self.number, harness::device_mapper::MappedDisk::suspend))
    }

    /// Lets the disk answer again, also the requests from while it hung.
    #[track_caller]
    pub fn goes_on(&self) -> Result {
        let doing = self.begin("goes_on()", Location::caller());
        doing.done(self.shared.bed.with_disk(self.number, harness::device_mapper::MappedDisk::resume))
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

    /// Pulls the disk out, also while it is in use.
    #[track_caller]
    pub fn is_pulled_out(&self) -> Result {
        let doing = self.shared.begin("disk.is_pulled_out()", Location::caller());
        doing.done(self.shared.bed.with_plugged_disk(harness::module_disk::PluggedDisk::pull_out))
    }

    /// Checks that the disk is in use: its kernel module cannot be unloaded.
    #[track_caller]
    pub fn is_held(&self) -> Result {
        self.check_unload("disk.is_held()", false, Location::caller())
    }

    /// Checks that the disk is not in use, by unloading its kernel module.
    #[track_caller]
    pub fn is_let_go(&self) -> Result {
        self.check_unload("disk.is_let_go()", true, Location::caller())
    }

    fn check_unload(&self, step: &str, expected: bool, at: &Location<'_>) -> Result {
        let doing = self.shared.begin(step, at);
        let unloaded = self.shared.bed.with_plugged_disk(harness::module_disk::PluggedDisk::unload);
        doing.done(unloaded.and_then(|unloaded| match (unloaded, expected) {
            (true, false) => {
                Err(broken("The disk's kernel module could be unloaded: the disk is not in use."))
            }
            (false, true) => Err(broken("The disk's kernel module cannot be unloaded: the disk is in use.")),
            _ => Ok(()),
        }))
    }
}

impl SpottyDisk {
    /// Its device node.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes reads and writes of these sectors fail from now on.
    #[track_caller]
    pub fn is_bad_at(&self, sectors: Range<u64>) -> Result {
        let doing = self.shared.begin(&format!("disk.is_bad_at({sectors:?})"), Location::caller());
        doing.done(self.shared.bed.with_spotty_disk(|disk| disk.spoil(sectors)))
    }

    /// Makes reads and writes of these sectors succeed again.
    #[track_caller]
    pub fn is_good_at(&self, sectors: Range<u64>) -> Result {
        let doing = self.shared.begin(&format!("disk.is_good_at({sectors:?})"), Location::caller());
        doing.done(self.shared.bed.with_spotty_disk(|disk| disk.mend(sectors)))
    }
}

fn broken(message: &str) -> StepError {
    StepError::Broken(vec![message.to_owned()])
}
