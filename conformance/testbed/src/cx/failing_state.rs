//! Disk errors for the driver: images in its state directory fail on order.

use std::fs::File;
use std::panic::Location;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use harness::fault_fs::Rule;

use super::{Cx, NodeCalls, Shared};
use crate::bed::node_calls::in_time;
use crate::failure::Result;

/// The pause between two looks whether a rule has taken effect.
const PAUSE: Duration = Duration::from_millis(5);

/// The driver's state directory on a file system that fails on order.
#[derive(Debug)]
pub struct FailingState {
    shared: Rc<Shared>,
}

/// The image file that the driver keeps for one volume.
#[derive(Debug)]
pub struct FailingImage {
    shared: Rc<Shared>,
    path: PathBuf,
}

impl Cx {
    /// Puts the driver's directory on a file system that fails on order, and restarts the driver. Call it before the case
    /// creates a volume.
    #[track_caller]
    pub fn failing_state(&self) -> impl Future<Output = Result<FailingState>> {
        let doing = self.shared.begin("cx.failing_state()", Location::caller());
        async move {
            doing.done(self.shared.bed.make_state_fail_on_order().await)?;
            Ok(FailingState { shared: self.shared() })
        }
    }
}

impl FailingState {
    /// The image of the volume that was created or staged last; `None` if the driver keeps no image in its directory.
    #[track_caller]
    pub fn new_image(&self) -> Result<Option<FailingImage>> {
        let doing = self.shared.begin("state.new_image()", Location::caller());
        let path = doing.done(self.shared.bed.new_image())?;
        Ok(path.map(|path| FailingImage { shared: Rc::clone(&self.shared), path }))
    }
}

impl FailingImage {
    /// Lets operations on the image fail as the rule says.
    #[track_caller]
    pub fn fails(&self, rule: Rule) -> Result {
        let doing = self.shared.begin(&format!("image.fails({rule:?})"), Location::caller());
        doing.done(self.shared.bed.fail_state(rule.path(&self.path)))
    }

    /// Ends all faults.
    #[track_caller]
    pub fn recovers(&self) -> Result {
        let doing = self.shared.begin("image.recovers()", Location::caller());
        doing.done(self.shared.bed.mend_state())
    }

    /// Whether an operation on the image has failed yet.
    #[track_caller]
    pub fn has_failed(&self) -> Result<bool> {
        let doing = self.shared.begin("image.has_failed()", Location::caller());
        Ok(doing.done(self.shared.bed.state_failures())? > 0)
    }

    /// Waits until an operation on the image fails or hangs. Returns `false` if none does in time.
    #[track_caller]
    pub fn is_met(&self, within: Duration) -> impl Future<Output = Result<bool>> {
        let doing = self.shared.begin("image.is_met()", Location::caller());
        async move {
            let met = async {
                while doing.done(self.shared.bed.state_failures())? == 0 {
                    tokio::time::sleep(PAUSE).await;
                }
                Ok(true)
            };
            tokio::time::timeout(within, met).await.unwrap_or(Ok(false))
        }
    }
}

impl NodeCalls {
    /// Whether the kernel lets a file be written and synced at a target.
    pub fn can_write<'a>(
        &'a self,
        target: &str,
        name: &'a str,
    ) -> impl Future<Output = Result<bool>> + use<'a> {
        let at = self.target(target);
        async move {
            match self.writes(&at, name).await {
                Ok(()) => Ok(true),
                Err(failure) if failure.is_of_the_world() => Ok(false),
                Err(failure) => Err(failure),
            }
        }
    }

    /// Whether the kernel lets an empty file be created and its directory be synced at a target.
    #[track_caller]
    pub fn can_name(&self, target: &str, name: &str) -> impl Future<Output = Result<bool>> + use<> {
        let doing = self.shared.begin(&format!("making {name}"), Location::caller());
        let (at, name) = (self.target(target), name.to_owned());
        async move {
            let create =
                move || File::create(at.join(name)).and_then(|_| File::open(&at)?.sync_all()).is_ok();
            doing.done(in_time("making a file", create).await)
        }
    }

    /// Whether the mount options at a target say that the file system no longer accepts writes.
    #[track_caller]
    pub fn is_read_only(&self, target: &str) -> Result<bool> {
        const STOPPED: [&str; 3] = ["ro", "emergency_ro", "shutdown"];
        let mounts = self.mounts_at(&self.target(target))?;
        Ok(mounts.iter().any(|options| options.split(',').any(|word| STOPPED.contains(&word))))
    }
}

impl crate::failure::Failure {
    /// Whether the step failed because of the disk: an expected outcome here, and no fault of the case.
    fn is_of_the_world(&self) -> bool {
        matches!(&*self.what, crate::failure::What::Broken { .. })
    }
}
