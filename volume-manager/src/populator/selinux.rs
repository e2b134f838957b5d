//! The SELinux label that a volume is mounted with for a pod.
//!
//! A volume can be mounted with one label only. Two pods whose containers run with different labels therefore
//! cannot use it at the same time.

use std::collections::BTreeSet;

use api::names::{OuterName, VolumeName};
use api::pod::SeLinuxOptions;
use api::{AccessMode, Pod};
use plugin_api::{Facts, Spec, VolumePlugin};

use crate::desired::Wanted;

/// The labels of a volume in a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Labels {
    /// The label to mount with; empty for none.
    pub(super) effective: String,
    /// The label of the containers, even if the volume is not mounted with it.
    pub(super) original: String,
    /// Whether the volume is mounted with a label at all.
    mountable: bool,
}

/// The parts of a file label that a container's options leave open.
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

/// Fails if a pod wants a volume with another label than the pods that already want it.
pub(super) fn check_conflict(volume: &VolumeName, wanted: &Wanted, labels: &Labels) -> Result<(), String> {
    if wanted.label == labels.effective || !labels.mountable {
        return Ok(());
    }
    Err(format!(
        "conflicting SELinux labels of volume {volume}: \"{}\" and \"{}\"",
        wanted.label, labels.effective
    ))
}

/// The SELinux options of each container that uses the volume.
fn containers<'a>(pod: &'a Pod, outer: &'a OuterName) -> impl Iterator<Item = Option<&'a SeLinuxOptions>> {
    let uses =
        |container: &&api::Container| container.mounts.iter().any(|mount| mount.volume == outer.as_str());
    let label = |c: &'a api::Container| c.selinux.as_deref().or(pod.security.selinux.as_deref());
    pod.containers.iter().filter(uses).map(label)
}

/// The label of a container's files; empty without options. Only user and level are the container's: role and
/// type of the options are those of processes, and files have the system's defaults.
fn file_label(options: Option<&SeLinuxOptions>) -> String {
    let Some(options) = options else { return String::new() };
    let [user, role, kind, level] = DEFAULT;
    let or =
        |given: &str, default: &str| if given.is_empty() { default.to_owned() } else { given.to_owned() };
    [or(&options.user, user), role.to_owned(), kind.to_owned(), or(&options.level, level)].join(":")
}

/// Whether only one pod at a time can use the volume, so that labels cannot conflict.
fn takes_label(spec: &Spec) -> bool {
    spec.volume().is_some_and(|volume| volume.access_modes == [AccessMode::ReadWriteOncePod])
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use api::pod::{PodVolume, VolumeMount};
    use api::{Container, ContainerKind, Volume, VolumeSource};
    use testing::Toy;

    use super::*;

    fn pod(levels: &[&str]) -> Pod {
        let container = |level: &&str| Container {
            mounts: vec![VolumeMount { volume: "data".to_owned(), ..VolumeMount::default() }],
            selinux: Some(Box::new(SeLinuxOptions {
                level: (*level).to_owned(),
                ..SeLinuxOptions::default()
            })),
            ..Container::default()
        };
        let source = VolumeSource::Claim { claim: "c".to_owned(), read_only: false };
        Pod {
            containers: levels.iter().map(container).collect(),
            volumes: vec![PodVolume { name: "data".into(), source }],
            ..Pod::default()
        }
    }

    fn spec(modes: &[AccessMode]) -> Spec {
        Spec::persistent(Arc::new(Volume { access_modes: modes.to_vec(), ..Volume::default() }), false)
    }

    fn effective(pod: &Pod, modes: &[AccessMode], takes: bool, enforced: bool) -> Result<String, String> {
        let facts = Facts { selinux: enforced, ..Facts::default() };
        let toy = Toy::default();
        toy.set_takes_labels(takes);
        labels(pod, &"data".into(), &spec(modes), &toy, &facts).map(|labels| labels.effective)
    }

    const ALONE: &[AccessMode] = &[AccessMode::ReadWriteOncePod];
    const SHARED: &[AccessMode] = &[AccessMode::ReadWriteMany];
    const LABEL: &str = "system_u:object_r:container_file_t:s0:c1";

    #[test]
    fn a_label_needs_a_node_a_plugin_and_a_volume_that_take_it() {
        let web = pod(&["s0:c1"]);
        assert_eq!(effective(&web, ALONE, true, true).as_deref(), Ok(LABEL));
        assert_eq!(effective(&web, ALONE, true, false).as_deref(), Ok(""));
        assert_eq!(effective(&web, ALONE, false, true).as_deref(), Ok(""));
        assert_eq!(effective(&web, SHARED, true, true).as_deref(), Ok(""));
        let mut recursive = web;
        recursive.security.selinux_recursive = true;
        assert_eq!(effective(&recursive, ALONE, true, true).as_deref(), Ok(""));
    }

    #[test]
    fn only_a_claim_for_one_pod_alone_is_mounted_with_a_label() {
        let web = pod(&["s0:c1"]);
        for modes in [&[AccessMode::ReadWriteOncePod, AccessMode::ReadWriteOnce][..], &[]] {
            assert_eq!(effective(&web, modes, true, true).as_deref(), Ok(""), "{modes:?}");
        }
        let inline = Spec::inline(Arc::new(web.volumes[0].clone()));
        let facts = Facts { selinux: true, ..Facts::default() };
        let labels = labels(&web, &"data".into(), &inline, &Toy::default(), &facts).unwrap();
        assert_eq!((&*labels.effective, &*labels.original), ("", LABEL));
    }

    #[test]
    fn files_have_the_user_and_level_of_their_container_and_the_role_and_type_of_files() {
        let mut web = pod(&[""]);
        let options = web.containers[0].selinux.as_mut().unwrap();
        **options = SeLinuxOptions {
            user: "user_u".to_owned(),
            role: "system_r".to_owned(),
            kind: "spc_t".to_owned(),
            level: "s0:c2".to_owned(),
        };
        let label = effective(&web, ALONE, true, true);
        assert_eq!(label.as_deref(), Ok("user_u:object_r:container_file_t:s0:c2"));
        web.containers[0].selinux = Some(Box::new(SeLinuxOptions::default()));
        let label = effective(&web, ALONE, true, true);
        assert_eq!(label.as_deref(), Ok("system_u:object_r:container_file_t:s0"));
    }

    #[test]
    fn two_labels_are_an_error_only_where_one_would_be_mounted() {
        let web = pod(&["s0:c1", "s0:c2"]);
        assert!(effective(&web, ALONE, true, true).is_err());
        assert_eq!(effective(&web, SHARED, true, true).as_deref(), Ok(""));
    }

    #[test]
    fn container_without_the_volume_does_not_set_its_label() {
        let mut web = pod(&["s0:c1", "s0:c2"]);
        web.containers[1].mounts[0].volume = "other".to_owned();
        assert_eq!(effective(&web, ALONE, true, true).as_deref(), Ok(LABEL));
        web.containers[1].mounts.clear();
        assert_eq!(effective(&web, ALONE, true, true).as_deref(), Ok(LABEL));
    }

    #[test]
    fn every_kind_of_container_has_a_say_in_the_label() {
        for kind in [ContainerKind::Regular, ContainerKind::Init, ContainerKind::Ephemeral] {
            let mut web = pod(&["s0:c1", "s0:c2"]);
            web.containers[1].kind = kind;
            assert!(effective(&web, ALONE, true, true).is_err(), "{kind:?}");
        }
    }

    #[test]
    fn the_pods_label_is_that_of_containers_that_say_nothing() {
        let mut web = pod(&[""]);
        web.containers[0].selinux = None;
        assert_eq!(effective(&web, ALONE, true, true).as_deref(), Ok(""));
        web.security.selinux =
            Some(Box::new(SeLinuxOptions { level: "s0:c1".to_owned(), ..Default::default() }));
        assert_eq!(effective(&web, ALONE, true, true).as_deref(), Ok(LABEL));
    }
}
