//! The desired state: which pods want which volumes, and how.
//!
//! The populator writes it, the reconciler reads it. Nothing here touches the host or the API.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use api::names::{OuterName, PluginName, PodUid, SpecName, VolumeName};
use api::{Bytes, Pod};
use plugin_api::Spec;

use crate::few::Few;

#[derive(Debug, Clone, Default)]
pub struct DesiredState {
    /// Boxed, since a node of the map has room for more entries than are in it.
    volumes: BTreeMap<VolumeName, Box<Wanted>>,
    /// The volumes that a pod wants: an index over `volumes`.
    by_pod: BTreeMap<PodUid, Few<VolumeName, ()>>,
    /// The errors of each pod, without repetitions.
    errors: BTreeMap<PodUid, BTreeSet<String>>,
}

/// A volume that some pod wants. Everything but the size is set by the first pod that wants it.
#[derive(Debug, Clone, PartialEq)]
pub struct Wanted {
    pub plugin: PluginName,
    /// Whether the attach/detach controller has to attach it.
    pub attachable: bool,
    /// Whether the volume is staged, or has a global map.
    pub device_mountable: bool,
    /// The supplemental group of the volume, as written in its annotation.
    pub gid: Option<String>,
    /// Whether the node's object lists it as in use.
    pub reported_in_use: bool,
    /// The size limit, for plugins that can enforce one.
    pub size_limit: Option<Bytes>,
    /// The wanted size; zero for a volume without a PersistentVolume.
    pub size: Bytes,
    /// The SELinux label to mount with; empty for none.
    pub label: String,
    /// The label of the pods' containers, even if the volume is not mounted with it.
    pub original_label: String,
    pub pods: Few<PodUid, WantedBy>,
}

/// A pod that wants a volume.
#[derive(Debug, Clone, PartialEq)]
pub struct WantedBy {
    pub pod: Arc<Pod>,
    pub spec: Arc<Spec>,
    /// The names of the volume in the pod: two pod volumes with the same claim are one volume.
    pub outer: Vec<OuterName>,
}

impl DesiredState {
    /// A volume that some pod wants.
    pub fn volume(&self, volume: &VolumeName) -> Option<&Wanted> {
        self.volumes.get(volume).map(|wanted| &**wanted)
    }

    /// All volumes that some pod wants.
    pub fn volumes(&self) -> impl Iterator<Item = (&VolumeName, &Wanted)> {
        self.volumes.iter().map(|(volume, wanted)| (volume, &**wanted))
    }

    /// The volumes a pod wants.
    pub fn volumes_of(&self, pod: &PodUid) -> impl Iterator<Item = (&VolumeName, &Wanted, &WantedBy)> {
        let volumes = self.by_pod.get(pod).into_iter().flat_map(Few::keys);
        volumes.filter_map(move |volume| {
            let wanted = self.volume(volume)?;
            Some((volume, wanted, wanted.pods.get(pod)?))
        })
    }

    /// The volumes that a pod wants, starting at `first` or the next one after it, and then those before it.
    pub fn names_of(&self, pod: &PodUid, first: Option<&VolumeName>) -> impl Iterator<Item = &VolumeName> {
        self.by_pod.get(pod).into_iter().flat_map(move |volumes| volumes.keys_from(first))
    }

    /// Whether a pod wants any volume.
    pub fn has_pod(&self, pod: &PodUid) -> bool {
        self.by_pod.contains_key(pod)
    }

    /// Whether a pod wants a volume.
    pub fn wants(&self, volume: &VolumeName, pod: &PodUid) -> bool {
        self.volumes.get(volume).is_some_and(|wanted| wanted.pods.contains_key(pod))
    }

    /// Whether a pod wants a volume with the label that it is mounted with. `None` matches every label.
    pub fn wants_with_label(&self, volume: &VolumeName, pod: &PodUid, label: Option<&str>) -> bool {
        self.exists_with_label(volume, label) && self.wants(volume, pod)
    }

    /// Whether any pod wants a volume with the label that it is mounted with. `None` matches every label.
    pub fn exists_with_label(&self, volume: &VolumeName, label: Option<&str>) -> bool {
        let wanted = self.volumes.get(volume);
        wanted.is_some_and(|wanted| label.is_none_or(|label| label == wanted.label))
    }

    /// Whether a pod wants a volume of this PersistentVolume's or pod volume's name.
    pub fn wants_inner(&self, pod: &PodUid, inner: &SpecName) -> bool {
        self.volumes_of(pod).any(|(_, _, by)| &by.spec.name() == inner)
    }

    /// The volume with this name in the pod.
    pub fn by_outer_name(&self, pod: &PodUid, outer: &OuterName) -> Option<&VolumeName> {
        self.volumes_of(pod).find(|(_, _, by)| by.outer.contains(outer)).map(|(volume, ..)| volume)
    }
}

/// Methods of the populator and the loop.
impl DesiredState {
    /// Adds a volume that a pod wants. `new` is used if no pod wanted it before.
    pub fn add(
        &mut self,
        volume: &VolumeName,
        new: Wanted,
        uid: PodUid,
        pod: Arc<Pod>,
        spec: Arc<Spec>,
        outer: OuterName,
    ) {
        let wanted = self.volumes.entry(volume.clone()).or_insert_with(|| Box::new(new));
        let names = wanted.pods.remove(&uid).map(|by| by.outer).unwrap_or_default();
        let mut by = WantedBy { pod, spec, outer: names };
        if !by.outer.contains(&outer) {
            by.outer.push(outer);
            by.outer.sort();
        }
        wanted.pods.insert(uid.clone(), by);
        self.by_pod.entry(uid).or_default().insert(volume.clone(), ());
    }

    /// Removes everything that a pod wants, and returns those volumes.
    pub fn remove_pod(&mut self, pod: &PodUid) -> Vec<VolumeName> {
        let volumes: Vec<_> = self.by_pod.remove(pod).unwrap_or_default().into_keys().collect();
        for volume in &volumes {
            let Some(wanted) = self.volumes.get_mut(volume) else { continue };
            wanted.pods.remove(pod);
            if wanted.pods.is_empty() {
                self.volumes.remove(volume);
            }
        }
        self.errors.remove(pod);
        volumes
    }

    /// Sets the wanted size of a volume.
    pub fn set_size(&mut self, volume: &VolumeName, size: Bytes) {
        if let Some(wanted) = self.volumes.get_mut(volume) {
            wanted.size = size;
        }
    }

    /// Marks a volume as one that needs no attachment. Its unique name stays: it still is a staged volume.
    pub fn set_not_attachable(&mut self, volume: &VolumeName) {
        if let Some(wanted) = self.volumes.get_mut(volume) {
            wanted.attachable = false;
        }
    }

    /// Sets whether the node's object lists a volume as in use.
    pub fn set_reported_in_use(&mut self, volume: &VolumeName, reported: bool) {
        if let Some(wanted) = self.volumes.get_mut(volume) {
            wanted.reported_in_use = reported;
        }
    }

    pub fn add_error(&mut self, pod: &PodUid, error: String) {
        /// Errors of one pod beyond this number are dropped.
        const MOST: usize = 11;
        let errors = self.errors.entry(pod.clone()).or_default();
        if errors.len() < MOST {
            errors.insert(error);
        }
    }

    /// The errors of a pod, sorted.
    pub fn errors_of(&self, pod: &PodUid) -> Option<&BTreeSet<String>> {
        self.errors.get(pod)
    }

    /// Takes the errors of a pod, sorted.
    pub fn take_errors(&mut self, pod: &PodUid) -> Vec<String> {
        self.errors.remove(pod).into_iter().flatten().collect()
    }

    /// The errors of all pods.
    pub fn errors(&self) -> &BTreeMap<PodUid, BTreeSet<String>> {
        &self.errors
    }
}

/// The text that recordings use for a pod's share of a volume.
pub(crate) fn describe(wanted: &Wanted, by: &WantedBy) -> String {
    struct Names<'a>(&'a [OuterName]);
    impl fmt::Display for Names<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            for (index, name) in self.0.iter().enumerate() {
                let separator = if index == 0 { "" } else { "," };
                write!(f, "{separator}{name}")?;
            }
            Ok(())
        }
    }
    format!(
        "outer={} attachable={} reportedInUse={} desiredSize={}",
        Names(&by.outer),
        wanted.attachable,
        wanted.reported_in_use,
        wanted.size
    )
}

#[cfg(test)]
mod tests {
    use api::{Meta, Volume};

    use super::*;

    fn pod(name: &str) -> Arc<Pod> {
        Arc::new(Pod { meta: Meta { uid: name.into(), ..Meta::named("default", name) }, ..Pod::default() })
    }

    fn spec(name: &str) -> Arc<Spec> {
        Arc::new(Spec::persistent(
            Arc::new(Volume { meta: Meta::named("", name), ..Volume::default() }),
            false,
        ))
    }

    fn wanted(label: &str) -> Wanted {
        Wanted {
            plugin: "p".into(),
            attachable: true,
            device_mountable: true,
            gid: None,
            reported_in_use: false,
            size_limit: None,
            size: Bytes(1),
            label: label.to_owned(),
            original_label: label.to_owned(),
            pods: Few::default(),
        }
    }

    fn add(book: &mut DesiredState, volume: &str, by: &str, outer: &str) {
        book.add(&volume.into(), wanted("a"), by.into(), pod(by), spec(volume), outer.into());
    }

    fn volumes_of(book: &DesiredState, pod: &str) -> Vec<String> {
        book.volumes_of(&pod.into()).map(|(volume, ..)| volume.to_string()).collect()
    }

    #[test]
    fn a_volume_is_as_its_first_pod_wants_it_and_goes_with_its_last() {
        let mut book = DesiredState::default();
        add(&mut book, "v", "web", "data");
        book.add(&"v".into(), wanted("b"), "db".into(), pod("db"), spec("v"), "disk".into());
        add(&mut book, "w", "web", "more");
        assert_eq!(book.volume(&"v".into()).map(|wanted| wanted.label.as_str()), Some("a"));
        assert_eq!(volumes_of(&book, "web"), ["v", "w"]);
        assert_eq!(book.volumes().count(), 2);

        assert_eq!(book.remove_pod(&"web".into()), ["v".into(), "w".into()]);
        assert!(!book.has_pod(&"web".into()) && book.has_pod(&"db".into()));
        assert!(book.volume(&"w".into()).is_none());
        assert!(book.wants(&"v".into(), &"db".into()) && !book.wants(&"v".into(), &"web".into()));
        assert_eq!(volumes_of(&book, "web"), [""; 0]);
        book.remove_pod(&"db".into());
        assert_eq!(book.volumes().count(), 0);
        assert!(book.remove_pod(&"db".into()).is_empty());
    }

    #[test]
    fn a_claim_that_is_named_twice_is_one_volume_with_two_names() {
        let mut book = DesiredState::default();
        for outer in ["data", "again", "data"] {
            add(&mut book, "v", "web", outer);
        }
        add(&mut book, "w", "web", "other");
        let names: Vec<_> = book.volumes_of(&"web".into()).map(|(_, _, by)| by.outer.clone()).collect();
        assert_eq!(names, [vec!["again".into(), "data".into()], vec!["other".into()]]);
        let wanted = book.volume(&"v".into()).unwrap();
        let text = describe(wanted, &wanted.pods[&"web".into()]);
        assert!(text.starts_with("outer=again,data attachable"), "{text}");
        for (outer, volume) in
            [("again", Some("v")), ("data", Some("v")), ("other", Some("w")), ("none", None)]
        {
            let found = book.by_outer_name(&"web".into(), &outer.into());
            assert_eq!(found.map(VolumeName::as_str), volume, "{outer}");
        }
        assert!(book.wants_inner(&"web".into(), &"w".into()));
        assert!(!book.wants_inner(&"web".into(), &"other".into()), "that is its name in the pod");
        assert!(!book.wants_inner(&"db".into(), &"w".into()));
    }

    #[test]
    fn a_pod_that_comes_again_wants_its_volume_as_it_says_now() {
        let mut book = DesiredState::default();
        add(&mut book, "v", "web", "data");
        let changed = Pod { host_network: true, ..Pod::clone(&pod("web")) };
        let read_only = Arc::new(Spec { read_only: true, ..Spec::clone(&spec("v")) });
        let again = Arc::new(changed.clone());
        book.add(&"v".into(), wanted("b"), "web".into(), again, Arc::clone(&read_only), "data".into());
        let wanted = book.volume(&"v".into()).unwrap();
        let by = &wanted.pods[&"web".into()];
        assert_eq!((&*by.pod, &by.spec), (&changed, &read_only));
        assert_eq!(wanted.label, "a", "the first pod has set the label");
    }

    #[test]
    fn the_names_of_a_pods_volumes_go_all_the_way_round() {
        let mut book = DesiredState::default();
        for volume in ["a", "c", "d"] {
            add(&mut book, volume, "web", volume);
        }
        add(&mut book, "b", "db", "b");
        let names = |first: Option<&str>| {
            let (web, first) = (PodUid::new("web"), first.map(VolumeName::from));
            let names = book.names_of(&web, first.as_ref());
            names.map(VolumeName::as_str).collect::<Vec<_>>().join(" ")
        };
        for (first, expected) in [
            (None, "a c d"),
            (Some("a"), "a c d"),
            (Some("b"), "c d a"),
            (Some("d"), "d a c"),
            (Some("e"), "a c d"),
        ] {
            assert_eq!(names(first), expected, "{first:?}");
        }
        assert_eq!(book.names_of(&"gone".into(), None).count(), 0);
    }

    #[test]
    fn another_label_is_another_volume() {
        let mut book = DesiredState::default();
        add(&mut book, "v", "web", "data");
        for (label, same) in [(None, true), (Some("a"), true), (Some("b"), false), (Some(""), false)] {
            assert_eq!(book.exists_with_label(&"v".into(), label), same, "{label:?}");
            assert_eq!(book.wants_with_label(&"v".into(), &"web".into(), label), same, "{label:?}");
            assert!(!book.wants_with_label(&"v".into(), &"db".into(), label), "{label:?}");
            assert!(!book.exists_with_label(&"w".into(), label), "{label:?}");
        }
    }

    #[test]
    fn volume_data_is_kept_while_wanted() {
        let mut book = DesiredState::default();
        add(&mut book, "v", "web", "data");
        for volume in ["v", "unknown"] {
            book.set_size(&volume.into(), Bytes(2));
            book.set_reported_in_use(&volume.into(), true);
            book.set_not_attachable(&volume.into());
        }
        let wanted = book.volume(&"v".into()).unwrap();
        assert_eq!((wanted.size, wanted.reported_in_use, wanted.attachable), (Bytes(2), true, false));
        let text = describe(wanted, &wanted.pods[&"web".into()]);
        assert_eq!(text, "outer=data attachable=false reportedInUse=true desiredSize=2");
        book.set_reported_in_use(&"v".into(), false);
        assert!(!book.volume(&"v".into()).unwrap().reported_in_use);
        assert_eq!(book.volumes().count(), 1);
    }

    #[test]
    fn a_pod_has_each_error_once_and_eleven_at_most() {
        let mut book = DesiredState::default();
        let web: PodUid = "web".into();
        assert_eq!(book.errors_of(&web), None);
        for error in ["b", "a", "b"] {
            book.add_error(&web, error.to_owned());
        }
        assert!(book.errors_of(&web).is_some() && book.errors_of(&"db".into()).is_none());
        assert_eq!(book.take_errors(&web), ["a", "b"]);
        assert!(book.errors_of(&web).is_none() && book.take_errors(&web).is_empty());

        (10..40).for_each(|number| book.add_error(&web, number.to_string()));
        assert_eq!(book.errors()[&web].len(), 11);
        book.remove_pod(&web);
        assert_eq!(book.errors_of(&web), None);
    }
}
