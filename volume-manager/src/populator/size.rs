//! The size limit of volumes on the node's own storage.

use api::{Bytes, Pod, VolumeSource};
use plugin_api::Spec;

/// The limit of a local ephemeral volume: its own limit or the pod's limit of ephemeral storage, whichever is smaller.
/// Zero if there is neither. `None` for other volumes.
pub(super) fn limit(pod: &Pod, spec: &Spec) -> Option<Bytes> {
    let source = &spec.pod_volume()?.source;
    let of_pod = pod_limit(pod);
    match source {
        VolumeSource::EmptyDir { medium, size_limit } if medium.is_empty() => {
            match size_limit.filter(|own| !own.is_zero()) {
                Some(own) if of_pod.is_zero() || own < of_pod => Some(own),
                _ => Some(of_pod),
            }
        }
        VolumeSource::GitRepo { .. } | VolumeSource::ConfigMap(_) => Some(of_pod),
        _ => None,
    }
}

/// The ephemeral storage that a pod may use. Zero if there is no limit.
fn pod_limit(pod: &Pod) -> Bytes {
    Bytes(pod.most_used(|container| container.ephemeral_storage_limit.unwrap_or_default().0))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use api::{Container, ContainerKind, PodVolume};

    use super::*;

    fn pod(limits: &[(ContainerKind, u64)]) -> Pod {
        let container = |(kind, limit): &(ContainerKind, u64)| Container {
            kind: *kind,
            ephemeral_storage_limit: Some(Bytes(*limit)).filter(|limit| !limit.is_zero()),
            ..Container::default()
        };
        Pod { containers: limits.iter().map(container).collect(), ..Pod::default() }
    }

    fn limit_of(pod: &Pod, source: VolumeSource) -> Option<Bytes> {
        limit(pod, &Spec::inline(Arc::new(PodVolume { name: "v".into(), source })))
    }

    fn empty_dir(medium: &str, size: Option<u64>) -> VolumeSource {
        VolumeSource::EmptyDir { medium: medium.to_owned(), size_limit: size.map(Bytes) }
    }

    #[test]
    fn pod_limit_is_the_largest_sum_of_containers_that_run_together() {
        use ContainerKind::{Init, Regular, Sidecar};
        for (limits, sum) in [
            (&[(Regular, 2), (Regular, 3)][..], 5),
            (&[(Init, 4), (Init, 7), (Regular, 2)], 7),
            (&[(Init, 4), (Regular, 6)], 6),
            (&[(Regular, 0)], 0),
            (&[(Sidecar, 3), (Regular, 2)], 5),
            (&[(Sidecar, 3), (Init, 4), (Sidecar, 1), (Regular, 2)], 7),
            (&[(Init, 4), (Sidecar, 3), (Regular, 2)], 5),
        ] {
            assert_eq!(pod_limit(&pod(limits)), Bytes(sum), "{limits:?}");
        }
    }

    #[test]
    fn volume_on_disk_has_the_smaller_limit() {
        let limited = pod(&[(ContainerKind::Regular, 10)]);
        let unlimited = pod(&[]);
        assert_eq!(limit_of(&limited, empty_dir("", None)), Some(Bytes(10)));
        assert_eq!(limit_of(&limited, empty_dir("", Some(4))), Some(Bytes(4)));
        assert_eq!(limit_of(&limited, empty_dir("", Some(40))), Some(Bytes(10)));
        assert_eq!(limit_of(&limited, empty_dir("", Some(0))), Some(Bytes(10)));
        assert_eq!(limit_of(&unlimited, empty_dir("", Some(40))), Some(Bytes(40)));
        assert_eq!(limit_of(&limited, empty_dir("Memory", Some(4))), None, "memory is limited elsewhere");
        assert_eq!(limit_of(&limited, VolumeSource::ConfigMap(Default::default())), Some(Bytes(10)));
        assert_eq!(limit_of(&limited, VolumeSource::Secret(Default::default())), None);
    }
}
