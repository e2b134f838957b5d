//! Graceful shutdown of a node, as the kubelet does it: its pods end in groups by their priority, and a group begins when
//! the volumes of the one before are unmounted or its time is over.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use api::{Node as NodeObject, Pod};
use contracts::event::PodPhase;
use futures::future::join_all;

use super::protocol::Order;
use super::{Node, NodeError};
use crate::api_server::NAMESPACE;

/// The least priority of a critical pod: that of the class `system-cluster-critical`.
pub const CRITICAL: i32 = 2_000_000_000;

/// The time of the pods from a priority on to end at a shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GracePeriod {
    pub priority: i32,
    pub time: Duration,
}

/// Pods that end together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    pub pods: Vec<String>,
    pub time: Duration,
}

impl GracePeriod {
    /// The time of a shutdown, and the part of it at the end that is for critical pods.
    pub fn of(total: Duration, critical: Duration) -> [Self; 2] {
        let ordinary = Self { priority: 0, time: total.saturating_sub(critical) };
        [ordinary, Self { priority: CRITICAL, time: critical }]
    }
}

/// The pods by the highest of these priorities that is not above their own, or else by the lowest, in the order in which
/// they end.
fn groups(pods: &[Arc<Pod>], periods: &[GracePeriod]) -> Vec<Group> {
    let mut periods = periods.to_vec();
    periods.sort_by_key(|period| period.priority);
    let place = |pod: &Pod| periods.iter().rposition(|period| period.priority <= pod.priority).unwrap_or(0);
    let of_period = |(number, period): (usize, &GracePeriod)| Group {
        pods: pods.iter().filter(|pod| place(pod) == number).map(|pod| pod.meta.name.clone()).collect(),
        time: period.time,
    };
    periods.iter().enumerate().map(of_period).filter(|group| !group.pods.is_empty()).collect()
}

impl Node {
    /// Marks the node as not ready. Returns the groups in which its pods end.
    ///
    /// # Errors
    /// When the node's object cannot be written.
    pub fn begin_shutdown(&self, periods: &[GracePeriod]) -> Result<Vec<Group>, NodeError> {
        let running: Vec<_> = self.pods().filter(|pod| !pod.is_over()).collect();
        let failed = |source| NodeError::Api { pod: self.name().to_owned(), source };
        self.api.change::<NodeObject>("", self.name(), |node| node.ready = false).map_err(failed)?;
        self.is_shut_down.store(true, Ordering::Relaxed);
        Ok(groups(&running, periods))
    }

    /// Marks the node as ready, if a shutdown has ended that.
    pub(super) fn end_shutdown(&self) -> Result<(), NodeError> {
        let failed = |source| NodeError::Api { pod: self.name().to_owned(), source };
        if self.is_shut_down.swap(false, Ordering::Relaxed) {
            self.api.change::<NodeObject>("", self.name(), |node| node.ready = true).map_err(failed)?;
        }
        Ok(())
    }

    /// Ends the pods of a group, whose containers are gone, and waits until their volumes are unmounted. Returns the reason
    /// of each pod that still has some at the end of the group's time.
    ///
    /// # Errors
    /// When the node is down, or a pod cannot be written.
    pub async fn end_group(&self, group: &Group) -> Result<Vec<NodeError>, NodeError> {
        for pod in &group.pods {
            self.journal().pod(pod, PodPhase::RuntimeGone);
            let failed = |source| NodeError::Api { pod: pod.clone(), source };
            let ended = |pod: &mut Pod| "Failed".clone_into(&mut pod.phase);
            let uid = self.api.change(NAMESPACE, pod, ended).map_err(failed)?.meta.uid.clone();
            self.note_gone(&uid);
            self.order(Order::RuntimeGone(uid)).await?;
        }
        let waits = group.pods.iter().map(|pod| self.wait_unmounted(pod, group.time));
        Ok(join_all(waits).await.into_iter().filter_map(Result::err).collect())
    }
}

#[cfg(test)]
mod tests {
    use api::Meta;

    use super::*;

    fn grouped(priorities: &[i32], periods: &[GracePeriod]) -> Vec<(Vec<String>, u64)> {
        let pod = |priority: &i32| {
            let meta = Meta::named(NAMESPACE, priority.to_string());
            Arc::new(Pod { meta, priority: *priority, ..Pod::default() })
        };
        let pods: Vec<_> = priorities.iter().map(pod).collect();
        groups(&pods, periods).into_iter().map(|group| (group.pods, group.time.as_secs())).collect()
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn critical_pods_end_last() {
        let periods = GracePeriod::of(Duration::from_secs(30), Duration::from_secs(10));
        let found = grouped(&[CRITICAL + 1000, 0, CRITICAL, 5], &periods);
        let critical = names(&["2000001000", "2000000000"]);
        assert_eq!(found, [(names(&["0", "5"]), 20), (critical, 10)]);
    }

    #[test]
    fn pod_ends_with_the_range_of_its_priority() {
        let period = |priority, seconds| GracePeriod { priority, time: Duration::from_secs(seconds) };
        let periods = [period(1000, 3), period(10, 7), period(100, 5)];
        // The ranges begin at 10, 100 and 1000; the lowest one has all below it, too.
        let found = grouped(&[-5, 10, 99, 100, 999, 1000, 5000], &periods);
        let all =
            [(names(&["-5", "10", "99"]), 7), (names(&["100", "999"]), 5), (names(&["1000", "5000"]), 3)];
        assert_eq!(found, all);
        assert_eq!(grouped(&[500], &periods), [(names(&["500"]), 5)], "no group is without pods");
    }
}
