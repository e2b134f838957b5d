//! Users and groups of a container, and what it does not get to see. Pure.

use std::collections::BTreeMap;

use super::ContainerError;
use crate::api::Pod;
use crate::event::MountedVolume;
use crate::names::OuterName;

/// Paths an ordinary container does not see.
pub const MASKED: &[&str] = &[
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];

/// Paths an ordinary container cannot write to.
pub const READ_ONLY: &[&str] = &["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// The groups of a container beside its user's own: the volumes' group, the pod's, and those that volumes
/// bring along, in this order.
pub fn supplemental_groups(pod: &Pod, volumes: &BTreeMap<OuterName, MountedVolume>) -> Vec<u32> {
    let mut groups: Vec<u32> = pod.security.fs_group.into_iter().collect();
    groups.extend(&pod.security.supplemental_groups);
    for volume in volumes.values() {
        // What is no number is nobody's group.
        let group = volume.gid.as_deref().and_then(|gid| gid.parse().ok());
        groups.extend(group.filter(|group| !groups.contains(group)));
    }
    groups
}

/// The user an image says its containers run as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImageUser {
    /// By number.
    Number(u32),
    /// By a name that only the image can resolve.
    Name(String),
    /// Not at all.
    Unknown,
}

/// Makes sure that a container that must not run as root does not.
pub fn verify_non_root(user: Option<u32>, image: &ImageUser) -> Result<(), ContainerError> {
    let root = |text: String| Err(ContainerError::Root(text));
    match (user, image) {
        (Some(0), _) => root("container's runAsUser breaks non-root policy".to_owned()),
        (Some(_), _) | (None, ImageUser::Unknown) => Ok(()),
        (None, ImageUser::Number(0)) => root("image will run as root".to_owned()),
        (None, ImageUser::Number(_)) => Ok(()),
        (None, ImageUser::Name(name)) => {
            root(format!("image has non-numeric user ({name}), cannot verify user is non-root"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_refused_and_so_is_a_name_that_may_be_roots() {
        use ImageUser::{Name, Number, Unknown};
        for (user, image, fine) in [
            (Some(0), Number(1), false),
            (Some(7), Number(0), true),
            (None, Number(0), false),
            (None, Number(7), true),
            (None, Name("www".into()), false),
            (None, Unknown, true),
        ] {
            assert_eq!(verify_non_root(user, &image).is_ok(), fine, "{user:?} {image:?}");
        }
    }
}
