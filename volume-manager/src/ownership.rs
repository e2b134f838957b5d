//! Giving a volume's files to a pod's group, with an event to the pod when that takes long.
//!
//! Touches the volume's tree through the host, which walks it.

use std::path::Path;
use std::time::Duration;

use api::Pod;
use host::{HostError, OwnershipChange, WalkProgress};
use plugin_api::{OperationContext, Reason};

/// The time until the first event to the pod, and between further ones.
const FIRST_NOTICE: Duration = Duration::from_secs(30);
const NOTICE: Duration = Duration::from_secs(60);

/// The ownership that a pod asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ownership {
    /// The group of every file.
    pub(crate) gid: u32,
    /// Whether the pod mounts the volume read-only, which changes fewer mode bits.
    pub(crate) read_only: bool,
    /// Whether nothing is done if the root directory is right already (`OnRootMismatch`).
    pub(crate) on_root_mismatch: bool,
}

impl Ownership {
    fn change(self) -> OwnershipChange {
        OwnershipChange { gid: self.gid, read_only: self.read_only }
    }
}

/// Changes group and mode of everything below `root`. The root comes last: its group and setgid bit show that a
/// walk has finished, so an interrupted walk is repeated.
///
/// There is no deadline: a volume may hold millions of files. The pod gets events while it lasts.
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
    // If this future is dropped, the walk stops.
    let _stop = StopOnDrop(progress.clone());
    let mut walk = std::pin::pin!(cx.host.change_ownership(root, change, &progress));
    let mut next = cx.clock.now() + FIRST_NOTICE;
    let mut first = true;
    loop {
        tokio::select! {
            biased;
            outcome = &mut walk => return outcome,
            () = cx.clock.sleep_until(next) => {
                warn_of_slow_walk(cx, pod, root, (!first).then(|| progress.entries()));
                first = false;
                next += NOTICE;
            }
        }
    }
}

fn warn_of_slow_walk(cx: &OperationContext, pod: &Pod, root: &Path, entries: Option<u64>) {
    // The path below the directory of pods: events do not name the node's own directories.
    let root = root.strip_prefix(cx.paths.pods()).unwrap_or(Path::new(&pod.meta.uid));
    let so_far = entries.map(|entries| format!(", processed {entries} files")).unwrap_or_default();
    let message = format!(
        "Setting volume ownership for {} is taking longer than expected, consider using OnRootMismatch - \
         https://kubernetes.io/docs/tasks/configure-pod-container/security-context/\
         #configure-volume-permission-and-ownership-change-policy-for-pods{so_far}",
        root.display()
    );
    cx.events.warn_pod(pod, Reason::VolumePermissionChangeInProgress, message);
}

struct StopOnDrop(WalkProgress);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use api::PersistentSource;
    use host::fake::{Order, Rule};

    use crate::operation::Operation;
    use crate::plugin::testing::Bench;

    /// Events come after 30 seconds and then every 60 seconds.
    #[tokio::test(start_paused = true)]
    async fn long_ownership_walk_has_events_and_no_deadline() {
        let (mut bench, host) = Bench::simulated();
        let data = bench.path("data");
        host.kernel().make_dir(&data, 0o755).unwrap();
        let path = data.display().to_string();
        bench.change_volume(|volume| {
            volume.source = PersistentSource::Local { path, fs_type: String::new() };
        });
        bench.pod.security.fs_group = Some(4711);
        let took = std::time::Duration::from_secs(95);
        host.faults().add(Rule::new(Order::Delay(took)).on("change_ownership"));
        let began = bench.now();
        let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
        assert!(story.ends_with("done\n"), "{story}");
        assert_eq!(bench.now().duration_since(began), took);
        let events = story.lines().filter(|line| line.contains("VolumePermissionChangeInProgress"));
        let events: Vec<&str> = events.collect();
        assert_eq!(events.len(), 2, "{story}");
        let text = "event Pod Warning VolumePermissionChangeInProgress: Setting volume ownership for \
                    u1/volumes/kubernetes.io~local-volume/pv is taking longer than expected, consider using \
                    OnRootMismatch - https://kubernetes.io/docs/tasks/configure-pod-container/security-context/\
                    #configure-volume-permission-and-ownership-change-policy-for-pods";
        assert_eq!(events, [text.to_owned(), format!("{text}, processed 0 files")]);
    }
}
