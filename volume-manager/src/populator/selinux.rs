//! Which SELinux label a volume is mounted with for a pod.
//!
//! A volume can be mounted with one label only. So the label a pod's containers run with is part of what
//! the volume is, and two pods with different labels cannot have it at once.

use std::collections::BTreeSet;

use crate::api::pod::SeLinuxOptions;
use crate::api::{AccessMode, Pod};
use crate::desired::Wanted;
use crate::names::{OuterName, VolumeName};
use crate::plugin::{Facts, Spec, VolumePlugin};

/// The labels of a volume in a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Labels {
    /// The one to mount with; empty for none.
    pub(super) effective: String,
    /// The one the containers run with, whether or not it is mounted.
    pub(super) original: String,
    /// Whether the volume is mounted with its label at all.
    mountable: bool,
}

/// The label the system gives files of a container that names only parts of one.
const DEFAULT: [&str; 4] = ["system_u", "object_r", "container_file_t", "s0"];

pub(super) fn labels(
    pod: &Pod,
    outer: &OuterName,
    spec: &Spec,
    plugin: &dyn VolumePlugin,
    facts: &Facts,
) -> Result<Labels, String> {
    if !facts.selinux || !plugin.takes_selinux_mount(spec, facts) {
        return Ok(Labels::default());
    }
    let distinct: BTreeSet<String> = containers(pod, outer).map(file_label).collect();
    let mountable = takes_label(spec);
    let original = match distinct.len() {
        0 | 1 => distinct.into_iter().next().unwrap_or_default(),
        _ if mountable => {
            let labels: Vec<_> = distinct.into_iter().collect();
            return Err(format!("multiple SELinux labels found for volume {outer}: {}", labels.join(", ")));
        }
        _ => String::new(),
    };
    let effective =
        if mountable && !pod.security.selinux_recursive { original.clone() } else { String::new() };
    Ok(Labels { effective, original, mountable })
}

/// A pod that is new to a volume must want it with the label it has.
pub(super) fn check_conflict(volume: &VolumeName, wanted: &Wanted, labels: &Labels) -> Result<(), String> {
    if wanted.label == labels.effective || !labels.mountable {
        return Ok(());
    }
    Err(format!(
        "conflicting SELinux labels of volume {volume}: \"{}\" and \"{}\"",
        wanted.label, labels.effective
    ))
}

/// What each container that uses the volume says about its label.
fn containers<'a>(pod: &'a Pod, outer: &'a OuterName) -> impl Iterator<Item = Option<&'a SeLinuxOptions>> {
    let uses = |container: &&crate::api::Container| {
        container.mounts.iter().any(|mount| mount.volume == outer.as_str())
    };
    let label = |c: &'a crate::api::Container| c.selinux.as_ref().or(pod.security.selinux.as_ref());
    pod.containers.iter().filter(uses).map(label)
}

/// The label of files of a container. Saying nothing is no label; saying a part takes the rest from the
/// system.
fn file_label(options: Option<&SeLinuxOptions>) -> String {
    let Some(options) = options else { return String::new() };
    let given = [&options.user, &options.role, &options.kind, &options.level];
    let parts = given.iter().zip(DEFAULT);
    // Processes have a role and a type of their own: files keep the system's role and type.
    let parts = parts.enumerate().map(|(index, (given, default))| match index {
        0 | 3 if !given.is_empty() => given.as_str(),
        2 if !given.is_empty() => given.as_str(),
        _ => default,
    });
    parts.collect::<Vec<_>>().join(":")
}

/// Whether only one pod can have the volume: then no two labels can ever meet in it.
fn takes_label(spec: &Spec) -> bool {
    spec.volume().is_some_and(|volume| volume.access_modes == [AccessMode::ReadWriteOncePod])
}
