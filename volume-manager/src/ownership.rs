//! Giving a volume's files to a pod's group, and telling when that takes long.
//!
//! Touches the volume's tree through the host, which walks it.

use std::path::Path;
use std::time::Duration;

use host::{HostError, OwnershipChange, WalkProgress};

use crate::api::Pod;
use crate::operation::{OperationContext, Reason};

/// When the pod is first told, and how often after that.
const FIRST_NOTICE: Duration = Duration::from_secs(30);
const NOTICE: Duration = Duration::from_secs(60);

/// Whose a volume is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ownership {
    /// The group every entry gets.
    pub(crate) gid: u32,
    /// Whether the pod only reads, which asks for less.
    pub(crate) read_only: bool,
    /// Whether a volume whose root is right already is left alone.
    pub(crate) on_root_mismatch: bool,
}

impl Ownership {
    fn change(self) -> OwnershipChange {
        OwnershipChange { gid: self.gid, read_only: self.read_only }
    }
}

/// Changes group and modes of everything below `root`, the root itself last: its group and setgid bit say
/// that an earlier walk came to its end, so one that was interrupted is done again.
///
/// There is no deadline: a volume may hold millions of files. The pod is told that it takes long.
pub(crate) async fn apply(
    cx: &OperationContext,
    pod: &Pod,
    root: &Path,
    ownership: Ownership,
) -> Result<(), HostError> {
    let change = ownership.change();
    if ownership.on_root_mismatch && change.root_matches(&cx.host.metadata(root).await?) {
        return Ok(());
    }
    let progress = WalkProgress::new();
    // If this future is dropped, nobody waits for the rest of the walk.
    let _stop = StopOnDrop(progress.clone());
    let mut walk = std::pin::pin!(cx.host.change_ownership(root, change, &progress));
    let mut next = cx.clock.now() + FIRST_NOTICE;
    let mut first = true;
    loop {
        tokio::select! {
            biased;
            outcome = &mut walk => return outcome,
            () = cx.clock.sleep_until(next) => {
                tell(cx, pod, (!first).then(|| progress.entries()));
                first = false;
                next += NOTICE;
            }
        }
    }
}

fn tell(cx: &OperationContext, pod: &Pod, entries: Option<u64>) {
    let so_far = entries.map(|entries| format!(", processed {entries} files")).unwrap_or_default();
    let message = format!(
        "Setting volume ownership for {} is taking longer than expected, consider using OnRootMismatch - \
         https://kubernetes.io/docs/tasks/configure-pod-container/security-context/\
         #configure-volume-permission-and-ownership-change-policy-for-pods{so_far}",
        pod.meta.uid
    );
    cx.events.warn_pod(pod, Reason::VolumePermissionChangeInProgress, message);
}

struct StopOnDrop(WalkProgress);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}
