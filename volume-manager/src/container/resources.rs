//! Limits of a container for processors and memory. Pure.

use std::collections::BTreeMap;

use api::quantity::thousandths;
use api::{Bytes, Container, ContainerKind, Pod};

use super::NodeFacts;

/// Limits in the units of control groups; zero is no limit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resources {
    /// CPU shares: the weight among other containers.
    pub cpu_shares: u64,
    /// The CPU period in microseconds.
    pub cpu_period: u64,
    /// The CPU time that it may use in a period, in microseconds.
    pub cpu_quota: u64,
    /// The memory limit in bytes.
    pub memory_limit: u64,
    /// The OOM score adjustment: a higher score is killed first.
    pub oom_score_adj: i32,
    /// The limit in bytes for each size of huge pages.
    pub huge_pages: BTreeMap<String, u64>,
}

const PERIOD: u64 = 100_000;

/// The QoS class of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum QosClass {
    Guaranteed,
    Burstable,
    BestEffort,
}

impl Resources {
    pub fn of(pod: &Pod, container: &Container, node: &NodeFacts) -> Self {
        let amount = |name: &str| container.resources.get(name).and_then(|text| thousandths(text));
        let limit = amount("limits.cpu");
        let shares = amount("requests.cpu").or(limit).map_or(0, |milli| milli * 1024 / 1000);
        let quota =
            limit.filter(|milli| *milli > 0).map_or(0, |milli| (milli * u128::from(PERIOD) / 1000).max(1000));
        let named = |size: &str| container.resources.get(&format!("limits.hugepages-{size}"));
        let huge_pages = node.huge_pages.iter().map(|size| {
            let bytes = named(size).and_then(|text| Bytes::from_quantity(text));
            (size.clone(), bytes.unwrap_or_default().0)
        });
        Self {
            // The kubelet's minimum, like the 1000 µs of the quota above.
            cpu_shares: saturated(shares).max(2),
            cpu_period: PERIOD,
            cpu_quota: saturated(quota),
            memory_limit: bytes_of(container, "limits.memory").unwrap_or_default().0,
            oom_score_adj: oom_score_adj(pod, container, node.memory),
            huge_pages: huge_pages.collect(),
        }
    }
}

fn saturated(amount: u128) -> u64 {
    u64::try_from(amount).unwrap_or(u64::MAX)
}

fn bytes_of(container: &Container, name: &str) -> Option<Bytes> {
    container.resources.get(name).and_then(|text| Bytes::from_quantity(text))
}

fn qos_class(pod: &Pod) -> QosClass {
    let containers = || pod.containers.iter().filter(|container| container.kind != ContainerKind::Ephemeral);
    let has_amount = |container: &Container| {
        container.resources.iter().any(|(name, amount)| {
            (name.ends_with(".cpu") || name.ends_with(".memory")) && thousandths(amount) != Some(0)
        })
    };
    if !containers().any(has_amount) {
        return QosClass::BestEffort;
    }
    let guaranteed = |container: &Container| {
        ["cpu", "memory"].iter().all(|name| {
            let amount = |kind: &str| {
                container.resources.get(&format!("{kind}.{name}")).and_then(|text| thousandths(text))
            };
            let limit = amount("limits");
            limit.is_some_and(|limit| limit > 0)
                && amount("requests").is_none_or(|amount| Some(amount) == limit)
        })
    };
    if containers().all(guaranteed) { QosClass::Guaranteed } else { QosClass::Burstable }
}

/// As in the kubelet: of burstable containers, one that requests more of the node's memory is killed later.
fn oom_score_adj(pod: &Pod, container: &Container, node_memory: Bytes) -> i32 {
    match qos_class(pod) {
        _ if pod.node_critical => -997,
        QosClass::Guaranteed => -997,
        QosClass::BestEffort => 1000,
        QosClass::Burstable => {
            let request = bytes_of(container, "requests.memory").or(bytes_of(container, "limits.memory"));
            let request = u128::from(request.unwrap_or_default().0);
            let share = (1000 * request).checked_div(u128::from(node_memory.0)).unwrap_or(0);
            // Below the score of a best-effort container, and above that of a guaranteed one.
            i32::try_from(1000 - i128::try_from(share).unwrap_or(1000)).unwrap_or(3).clamp(3, 999)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resources(amounts: &[(&str, &str)]) -> Resources {
        let amounts = amounts.iter().map(|(name, amount)| ((*name).to_owned(), (*amount).to_owned()));
        let container = Container { resources: amounts.collect(), ..Container::default() };
        let pod = Pod { containers: vec![container.clone()], ..Pod::default() };
        let node = NodeFacts {
            memory: Bytes(1000 << 20),
            huge_pages: vec!["2Mi".into(), "1Gi".into()],
            ..NodeFacts::default()
        };
        Resources::of(&pod, &container, &node)
    }

    #[test]
    fn amounts_are_in_units_of_control_groups() {
        let found = resources(&[
            ("requests.cpu", "250m"),
            ("limits.cpu", "1500m"),
            ("limits.memory", "64Mi"),
            ("limits.hugepages-2Mi", "4Mi"),
        ]);
        assert_eq!((found.cpu_shares, found.cpu_quota, found.memory_limit), (256, 150_000, 64 << 20));
        assert_eq!(found.huge_pages, BTreeMap::from([("1Gi".into(), 0), ("2Mi".into(), 4 << 20)]));
        let found = resources(&[]);
        assert_eq!((found.cpu_shares, found.cpu_quota, found.memory_limit), (2, 0, 0));
        assert_eq!(resources(&[("limits.cpu", "1m")]).cpu_quota, 1000);
        assert_eq!(resources(&[("limits.cpu", "0")]).cpu_quota, 0, "no limit");
    }

    #[test]
    fn smaller_memory_request_has_a_higher_oom_score() {
        for (amounts, score) in [
            (&[][..], 1000),
            (&[("limits.cpu", "1"), ("limits.memory", "1Mi")], -997),
            (&[("limits.cpu", "1"), ("requests.cpu", "1"), ("limits.memory", "1Mi")], -997),
            (&[("requests.memory", "500Mi")], 500),
            (&[("requests.memory", "1000Mi")], 3),
            (&[("requests.cpu", "1")], 999),
            (&[("requests.cpu", "0")], 1000),
        ] {
            assert_eq!(resources(amounts).oom_score_adj, score, "{amounts:?}");
        }
        let pod = Pod { node_critical: true, ..Pod::default() };
        let found = Resources::of(&pod, &Container::default(), &NodeFacts::default());
        assert_eq!(found.oom_score_adj, -997, "a node-critical pod");
    }
}
