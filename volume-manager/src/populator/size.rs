//! How large a volume may become that lives on the node's own storage.

use crate::api::{Bytes, ContainerKind, Pod, VolumeSource};
use crate::plugin::Spec;

/// The limit of a local ephemeral volume: the pod's for ephemeral storage, or a smaller one of its own.
/// `None` for volumes that are no such thing.
pub(super) fn limit(pod: &Pod, spec: &Spec) -> Option<Bytes> {
    let source = &spec.pod_volume()?.source;
    let of_pod = pod_limit(pod);
    match source {
        VolumeSource::EmptyDir { medium, size_limit } if medium.is_empty() => {
            let own = size_limit.filter(|own| !own.is_zero());
            Some(own.filter(|own| of_pod.is_zero() || *own < of_pod).unwrap_or(of_pod))
        }
        VolumeSource::GitRepo { .. } | VolumeSource::ConfigMap(_) => Some(of_pod),
        _ => None,
    }
}

/// What all containers of a pod together may use. Init containers run one after another, so only the
/// hungriest counts; zero if nobody has a limit.
fn pod_limit(pod: &Pod) -> Bytes {
    let limits = |kind: ContainerKind| {
        let containers = pod.containers.iter().filter(move |container| container.kind == kind);
        containers.map(|container| container.ephemeral_storage_limit.unwrap_or_default().0)
    };
    let regular = limits(ContainerKind::Regular).fold(0, u64::saturating_add);
    let init = limits(ContainerKind::Init).max().unwrap_or(0);
    Bytes(regular.max(init))
}
