//! The context of a case: volumes and pods, faults, the node and the driver, and one assertion.
//!
//! The functions remember the line they were called on, so that a failure names the place in the case and
//! not one in here. That is why they are plain functions that return futures: an `async fn` would run its
//! first line where it is polled.

mod across;
mod calls;
mod cluster;
mod container;
mod copies;
mod crash;
mod daemon;
mod data;
mod disk;
mod driver;
mod failing_state;
mod fault;
mod nfs;
mod node_calls;
mod object;
mod other_node;
mod pod;
mod queries;
mod reboot;
pub mod source;
mod volume;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;
use std::panic::Location;
use std::rc::Rc;

use contracts::promise::Strength;
use expect_test::Expect;
use harness::journal::Story;

use crate::bed::{Bed, STARTS_AGAIN, StepError};
use crate::call::{Code, Method};
use crate::dead_end::NotUndone;
use crate::failure::{Failure, Place, Result, What, place};
use crate::message::{Expectation, Orders, Progress, Sample};

pub use across::Lifecycle;
pub use calls::Answer;
pub use cluster::{ClaimBuilder, Cluster, ClusterSnapshot};
pub use container::Container;
pub use copies::Snapshot;
pub use crash::{Beginning, Victim};
pub use daemon::{Daemon, Daemons};
pub use data::{Blocks, Files};
pub use disk::{FaultyDisk, PluggedDisk, SpottyDisk};
pub use failing_state::{FailingImage, FailingState};
pub use fault::{Fault, Held};
pub use nfs::{Nfs, NfsServer, ReadError, Reading};
pub use node_calls::{Call, FileSystem, NodeCalls, OtherDirectory};
pub use other_node::OtherNode;
pub use pod::{Pod, PodBuilder};
pub use volume::{Volume, VolumeBuilder};

/// The context of one case.
#[derive(Debug)]
pub struct Cx {
    shared: Rc<Shared>,
}

/// The state that all handles of one case share.
pub struct Shared {
    pub bed: Bed,
    last: RefCell<Doing>,
    /// The methods that the case has called itself.
    called: RefCell<BTreeSet<String>>,
    update: bool,
    cuts: u32,
    say: Box<dyn Fn(Progress)>,
    claims: RefCell<Claims>,
}

/// A case's findings about numbered promises, from its own calls to the driver, that did not end it.
#[derive(Debug, Clone, Default)]
pub struct Claims {
    /// Promises that the driver kept when it was asked.
    pub kept: BTreeSet<&'static str>,
    /// Recommendations that it did not follow.
    pub ignored: Vec<Ignored>,
    /// The promises that could not be tried, and why.
    pub not_tried: Vec<String>,
    /// The first call that the end of the case has waited for in vain, which breaks [`crate::dead_end::UNDOES`].
    pub not_undone: Option<NotUndone>,
}

/// A recommendation that a driver did not follow.
#[derive(Debug, Clone)]
pub struct Ignored {
    pub contract: &'static str,
    pub method: String,
    pub cause: String,
    pub strength: Strength,
}

/// A step of a case: its name, and its line.
#[derive(Debug, Clone)]
pub struct Doing {
    pub step: String,
    pub at: Place,
}

impl Cx {
    pub fn new(bed: Bed, at: Place, orders: &Orders, say: Box<dyn Fn(Progress)>) -> Self {
        let last = RefCell::new(Doing { step: String::new(), at });
        let (update, cuts) = (orders.update, orders.cuts);
        let claims = RefCell::default();
        let called = RefCell::default();
        Self { shared: Rc::new(Shared { bed, last, called, update, cuts, say, claims }) }
    }

    /// The number of power cuts so far. A case that cuts the power begins anew, with the files on the disk.
    pub fn cuts(&self) -> u32 {
        self.shared.cuts
    }

    /// Cuts the power of the machine. There is nothing after this: the case begins anew when the machine is back.
    #[track_caller]
    pub fn cut_power(&self) -> impl Future<Output = Result> {
        self.shared.begin("cx.cut_power()", Location::caller());
        (self.shared.say)(Progress::CutPower);
        std::future::pending()
    }

    /// Has the kernel panic, also while calls are under way. The case cannot go on after this either.
    #[track_caller]
    pub fn panic_kernel(&self) -> impl Future<Output = Result> {
        let doing = self.shared.begin("cx.panic_kernel()", Location::caller());
        async move {
            doing.done(self.shared.bed.panic_kernel())?;
            std::future::pending().await
        }
    }

    /// The machine runs out of memory, and the kernel kills the driver before all other processes.
    #[track_caller]
    pub fn memory_runs_out(&self) -> impl Future<Output = Result> {
        let doing = self.shared.begin("cx.memory_runs_out()", Location::caller());
        async move { doing.done(self.shared.bed.starve_driver().await) }
    }

    /// The testbed, for another case.
    ///
    /// # Errors
    /// When a handle of this case is still in use.
    pub fn into_bed(self) -> std::result::Result<Bed, Rc<Shared>> {
        Rc::try_unwrap(self.shared).map(|shared| shared.bed)
    }

    pub fn shared(&self) -> Rc<Shared> {
        Rc::clone(&self.shared)
    }

    /// A volume, to be made by the driver.
    pub fn volume(&self, name: &str) -> VolumeBuilder {
        VolumeBuilder::new(self.shared(), name)
    }

    /// The file systems that the driver's manifest names.
    pub fn fs_types(&self) -> Vec<String> {
        self.shared.bed.fs_types()
    }

    /// A pod, to be given to the node.
    pub fn pod(&self, name: &str) -> PodBuilder {
        PodBuilder::new(self.shared(), name)
    }

    /// Lets calls fail before they reach the driver.
    pub fn fail(&self, method: Method, code: Code) -> Fault {
        Fault::new(self.shared(), method, code)
    }

    /// Has every call made a second time when the driver has answered it, as by a caller who has lost the answer.
    pub fn repeat_every_call(&self) {
        self.shared().bed.repeat_every_call();
    }

    /// Holds the answer of the next such call, once the driver has done its work.
    pub fn hold(&self, method: Method) -> Held {
        self.shared.bed.hold(method);
        Held::new(self.shared(), method)
    }

    /// Holds the answer of the next such call, once the driver has done its work, and then loses it: the node gets
    /// UNAVAILABLE.
    pub fn hold_and_lose(&self, method: Method) -> Held {
        self.shared.bed.hold_and_lose(method);
        Held::new(self.shared(), method)
    }

    /// The seed of all random choices of this case.
    pub fn seed(&self) -> u64 {
        self.shared.bed.seed()
    }

    /// Whether the case is to try each point there is (`--thorough`), and not a few.
    pub fn is_thorough(&self) -> bool {
        self.shared.bed.is_thorough()
    }

    /// Reports how many points of one kind the case has tried, of all that there are. `points` is their name in the plural.
    pub fn tries(&self, points: &str, tried: usize, all: usize) {
        let sample = Sample { points: points.to_owned(), tried, all };
        self.shared.bed.made.samples.borrow_mut().push(sample);
    }

    /// The node, which holds the volume manager.
    pub fn node(&self) -> Process {
        Process { shared: self.shared(), who: Provider::Node }
    }

    /// The driver's process, to kill or restart it.
    pub fn driver(&self) -> Process {
        Process { shared: self.shared(), who: Provider::Driver }
    }

    /// Looks away: what happened so far is another case's story.
    #[track_caller]
    pub fn forget(&self) -> impl Future<Output = Result> {
        let doing = self.shared.begin("cx.forget()", Location::caller());
        async move {
            let pending = self.shared.bed.settle().await;
            self.shared.bed.look();
            match pending.is_empty() {
                true => Ok(()),
                false => Err(Failure {
                    after: doing.step,
                    at: doing.at,
                    what: What::Broken { chain: pending, seen: None }.into(),
                }),
            }
        }
    }

    /// Compares everything that happened since the last look with the story of the case.
    ///
    /// Waits first until the manager is idle, so that there is nothing to sleep for. Where the driver does not
    /// stage, the story is meant without the lines about staging. With `UPDATE_EXPECT=1` a story that differs
    /// is written into the source.
    #[track_caller]
    pub fn sees(&self, story: Expect) -> impl Future<Output = Result> {
        let at = place(Location::caller());
        async move {
            let pending = self.shared.bed.settle().await;
            self.shared.compare_story(&story, &self.shared.bed.look(), pending, at)
        }
    }
}

/// The node or the driver, as something that can die.
#[derive(Debug)]
pub struct Process {
    shared: Rc<Shared>,
    who: Provider,
}

#[derive(Debug, Clone, Copy)]
enum Provider {
    Node,
    Driver,
}

impl Process {
    /// Kills the process at once, also in the middle of a call (SIGKILL).
    #[track_caller]
    pub fn kill(&self) -> impl Future<Output = Result> {
        self.shared.begin(&format!("{}.kill()", self.who), Location::caller());
        async move {
            match self.who {
                Provider::Node => self.shared.bed.node.kill().await,
                Provider::Driver => self.shared.bed.kill_driver().await,
            }
            Ok(())
        }
    }

    /// Starts it again, with only the files on disk.
    #[track_caller]
    pub fn start(&self) -> impl Future<Output = Result> {
        let doing = self.shared.begin(&format!("{}.start()", self.who), Location::caller());
        async move {
            let bed = &self.shared.bed;
            doing.done(match self.who {
                Provider::Node => bed.node.restart().await.map_err(|error| StepError::ours(&error)),
                Provider::Driver => bed.start_driver().await.map_err(|error| StepError::of_testbed(&error)),
            })?;
            if let Provider::Driver = self.who {
                self.shared.claims.borrow_mut().kept.insert(STARTS_AGAIN);
            }
            Ok(())
        }
    }

    /// Shuts the node down gracefully: its pods end by their priority, critical ones last, and their volumes are unmounted and
    /// unstaged before the node ends.
    #[track_caller]
    pub fn shuts_down(&self) -> impl Future<Output = Result> {
        let doing = self.shared.begin(&format!("{}.shuts_down()", self.who), Location::caller());
        async move { doing.done(self.shared.bed.shut_down_node().await) }
    }

    /// Removes the driver's registration, and waits until its node has noticed. The driver's process stays.
    #[track_caller]
    pub fn unregister(&self) -> impl Future<Output = Result> {
        let doing = self.shared.begin(&format!("{}.unregister()", self.who), Location::caller());
        async move { doing.done(self.shared.bed.unregister_driver().await) }
    }

    /// Lets the node die by itself after this number of further effects on the machine.
    pub async fn dies_after(&self, effects: u64) {
        self.shared.bed.doom_node(effects).await;
    }

    /// Waits until the node is at rest; one that has died meanwhile is started again. Says whether it had.
    #[track_caller]
    pub fn revive(&self) -> impl Future<Output = Result<bool>> {
        let doing = self.shared.begin(&format!("{}.revive()", self.who), Location::caller());
        async move { doing.done(self.shared.bed.revive_node().await) }
    }

    /// Kills it and starts it again.
    #[track_caller]
    pub fn restart(&self) -> impl Future<Output = Result> {
        let (kill, start) = (self.kill(), self.start());
        async move {
            kill.await?;
            start.await
        }
    }
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Node => "cx.node()",
            Self::Driver => "cx.driver()",
        })
    }
}

impl Shared {
    /// Notes what the case does now.
    pub(crate) fn begin(&self, step: &str, location: &Location<'_>) -> Doing {
        let doing = Doing { step: step.to_owned(), at: place(location) };
        self.last.replace(doing.clone());
        self.bed.step(&doing.step, &doing.at);
        (self.say)(Progress::Step(doing.step.clone()));
        doing
    }

    /// Compares what was seen with the story of the case.
    pub(crate) fn compare_story(
        &self,
        said: &Expect,
        seen: &Story,
        pending: Vec<String>,
        at: Place,
    ) -> Result {
        // Inline volumes that may only be read are published so, and others are not.
        let is_inline = self.bed.manifest().volume.inline_read_only && !self.bed.has_volumes();
        let actual = seen.to_string();
        let expected = for_this_driver(unindented(said.data()), self.bed.stages());
        // A driver may say that it cannot do something now, and is then asked again.
        let is_as_expected = [&actual, &seen.without_put_off_calls().to_string()]
            .into_iter()
            .any(|actual| expected == *actual || (is_inline && expected == for_writing(actual)));
        if is_as_expected || self.updates(said, &actual) {
            return Ok(());
        }
        let after = self.last().step;
        let pending = pending.into_iter().map(|what| format!("under way: {what}")).collect();
        Err(Failure { after, at, what: What::Story { expected, actual, pending }.into() })
    }

    /// Compares an observation with the case's expectation.
    pub(crate) fn compare(&self, said: &Expect, actual: String, at: &Place) -> Result {
        let expected = unindented(said.data());
        if expected == actual || self.updates(said, &actual) {
            return Ok(());
        }
        let (after, at) = (self.last().step, at.clone());
        Err(Failure { after, at, what: What::Story { expected, actual, pending: vec![] }.into() })
    }

    /// Writes the observation into the case's source, if `UPDATE_EXPECT` is set.
    fn updates(&self, said: &Expect, actual: &str) -> bool {
        if self.update {
            let (file, data) = (said.position.file.to_owned(), said.data.to_owned());
            let (line, column, actual) = (said.position.line, said.position.column, actual.to_owned());
            (self.say)(Progress::Expectation(Expectation { file, line, column, data, actual }));
        }
        self.update
    }

    /// The last step of the case.
    pub fn last(&self) -> Doing {
        self.last.borrow().clone()
    }
}

impl Doing {
    /// The result of the step, with the step's place if it failed.
    pub(crate) fn done<T>(&self, result: std::result::Result<T, StepError>) -> Result<T> {
        result.map_err(|error| Failure {
            after: self.step.clone(),
            at: self.at.clone(),
            what: error.into_cause().into(),
        })
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("last", &self.last).finish_non_exhaustive()
    }
}

/// The story as it must be for a driver that does not stage: the same, without the staging.
fn for_this_driver(story: String, stages: bool) -> String {
    let of_staging = |line: &&str| line.starts_with("csi    Stage ") || line.starts_with("csi    Unstage ");
    match stages {
        true => story,
        false => story.lines().filter(|line| !of_staging(line)).map(|line| format!("{line}\n")).collect(),
    }
}

/// The story with each volume mounted for writing. DRV-050 judges whether one that is published read-only is.
fn for_writing(story: &str) -> String {
    let line = |line: &str| match line.strip_suffix("   ro") {
        Some(mount) if mount.starts_with("mount  <publish:") => format!("{mount}\n"),
        _ => format!("{line}\n"),
    };
    story.lines().map(line).collect()
}

/// A story of a source file without the indentation of the code around it.
fn unindented(data: &str) -> String {
    let Some(text) = data.strip_prefix('\n') else { return data.to_owned() };
    let lines = || text.lines();
    let indent = |line: &str| line.len() - line.trim_start().len();
    let common = lines().filter(|line| !line.trim().is_empty()).map(indent).min().unwrap_or(0);
    let cut = lines().map(|line| line.get(common..).unwrap_or_default().to_owned() + "\n");
    let text: String = cut.collect();
    // The last line is the indentation of the closing quote.
    if text.ends_with("\n\n") { text[..text.len() - 1].to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_only_publish_is_told_as_one_for_writing() {
        let story = "csi    Publish data web\nmount  <publish:data/web>   ro\n";
        assert_eq!(for_writing(story), "csi    Publish data web\nmount  <publish:data/web>\n");
    }

    #[test]
    fn without_staging_the_story_is_the_same_but_for_it() {
        let story = "csi    Stage data\ncsi    Publish data web\nmount  <publish:data/web>\n";
        assert_eq!(for_this_driver(story.to_owned(), true), story);
        assert_eq!(
            for_this_driver(story.to_owned(), false),
            "csi    Publish data web\nmount  <publish:data/web>\n"
        );
    }

    #[test]
    fn a_story_is_read_without_the_indentation_around_it() {
        for (data, story) in [
            ("", ""),
            ("\n        a  b\n          c\n    ", "a  b\n  c\n"),
            ("\n        a\n        b\n        ", "a\nb\n"),
        ] {
            assert_eq!(unindented(data), story, "{data:?}");
        }
    }
}
