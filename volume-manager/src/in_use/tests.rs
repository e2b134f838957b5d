//! Which volumes are listed, and which are marked as reported, after each change.

use std::sync::Arc;

use api::{Bytes, Pod};
use expect_test::{Expect, expect};
use plugin_api::{Rebuilt, Transition};

use super::*;
use crate::desired::Wanted;
use crate::few::Few;
use crate::plugin::testing::{DRIVER, persistent_spec};

#[derive(Default)]
struct World {
    in_use: InUse,
    desired: DesiredState,
    actual: ActualState,
    story: String,
}

impl World {
    fn want(mut self, volume: &str, attachable: bool) -> Self {
        let wanted = Wanted {
            plugin: "p".into(),
            attachable,
            device_mountable: true,
            gid: None,
            reported_in_use: false,
            size_limit: None,
            size: Bytes::default(),
            label: String::new(),
            original_label: String::new(),
            pods: Few::default(),
        };
        let spec = Arc::new(persistent_spec(volume, DRIVER, volume));
        self.desired.add(&volume.into(), wanted, "".into(), Arc::new(Pod::default()), spec, "data".into());
        self.decide(&format!("want {volume}"), &[volume])
    }

    fn unwant(mut self) -> Self {
        let volumes = self.desired.remove_pod(&Pod::default().uid());
        let volumes: Vec<_> = volumes.iter().map(VolumeName::as_str).collect();
        self.decide("pod ends", &volumes)
    }

    fn apply(mut self, label: &str, volume: &str, transition: Transition) -> Self {
        self.actual.apply(&volume.into(), transition);
        self.decide(&format!("{label} {volume}"), &[volume])
    }

    fn attach(self, volume: &str) -> Self {
        let attached = Transition::Attached {
            spec: Arc::new(persistent_spec(volume, DRIVER, volume)),
            plugin: "p".into(),
            attachable: true,
            device_path: String::new(),
            claim_size: None,
        };
        self.apply("attach", volume, attached)
    }

    fn detach(self, volume: &str) -> Self {
        self.apply("detach", volume, Transition::Detached)
    }

    /// A restart finds it on disk, and the node's object does not list it as attached.
    fn find(mut self, volume: &str) -> Self {
        let rebuilt = Rebuilt {
            spec: persistent_spec(volume, DRIVER, volume),
            device_mount_path: Some("/staged".into()),
            selinux_label: None,
        };
        self.actual.add_reconstructed(&volume.into(), &"p".into(), &rebuilt, None);
        self.actual.correct(&volume.into(), None);
        self.in_use.observe(Event::Accounted(volume.into()));
        self.decide(&format!("find {volume}"), &[volume])
    }

    fn observe(mut self, label: &str, event: Event) -> Self {
        self.in_use.observe(event);
        self.decide(label, &[])
    }

    fn report(self, volumes: &[&str]) -> Self {
        let reported = Event::Reported(volumes.iter().map(|volume| (*volume).into()).collect());
        self.observe(&format!("report {}", volumes.join(" ")), reported)
    }

    fn decide(mut self, label: &str, changed: &[&str]) -> Self {
        let changed = changed.iter().map(|volume| (*volume).into()).collect();
        let marks = self.in_use.decide(&self.desired, &self.actual, &changed);
        let shown = |mark: &Mark| format!("{}{}", if mark.reported { '+' } else { '-' }, mark.volume);
        let shown: Vec<_> = marks.iter().map(shown).collect();
        marks.iter().for_each(|mark| self.desired.set_reported_in_use(&mark.volume, mark.reported));
        let list = |progress| self.in_use.list(progress).map(|list| format!("{list:?}").replace('"', ""));
        let lists = [list(Progress::Identifying), list(Progress::Complete)].map(Option::unwrap_or_default);
        let publish = if self.in_use.take_changed(Progress::Identifying) { "publish" } else { "" };
        let line = format!("{label:<14} {:<10} {:<10} {publish:<8} {}", lists[0], lists[1], shown.join(" "));
        self.story.push_str(&format!("{}\n", line.trim_end()));
        self
    }

    fn is_story(&self, expected: Expect) {
        expected.assert_eq(&self.story);
    }
}

#[test]
fn wanted_attachable_volumes_and_attached_volumes_are_listed() {
    let world = World::default().want("a", true).want("b", false).attach("a").attach("c").unwant();
    world.detach("a").detach("c").is_story(expect![[r#"
        want a         [a]        [a]        publish
        want b         [a]        [a]
        attach a       [a]        [a]
        attach c       [a, c]     [a, c]     publish
        pod ends       [a, c]     [a, c]
        detach a       [c]        [c]        publish
        detach c       []         []         publish
    "#]]);
}

#[test]
fn reported_volume_is_marked_until_it_leaves_the_list() {
    let world =
        World::default().want("a", true).report(&["a", "b"]).report(&["a"]).report(&[]).report(&["a"]);
    world.unwant().want("a", true).report(&["a"]).is_story(expect![[r#"
        want a         [a]        [a]        publish
        report a b     [a]        [a]                 +a
        report a       [a]        [a]
        report         [a]        [a]                 -a
        report a       [a]        [a]                 +a
        pod ends       []         []         publish
        want a         [a]        [a]        publish
        report a       [a]        [a]                 +a
    "#]]);
}

#[test]
fn reported_volume_is_marked_again_for_pods_that_want_it_while_it_is_listed() {
    let world = World::default().want("a", true).attach("a").report(&["a"]).unwant();
    world.want("a", true).is_story(expect![[r#"
        want a         [a]        [a]        publish
        attach a       [a]        [a]
        report a       [a]        [a]                 +a
        pod ends       [a]        [a]
        want a         [a]        [a]                 +a
    "#]]);
}

#[test]
fn listed_volume_of_the_node_stays_listed_until_everything_is_identified() {
    let listed = Event::FirstRead(["a", "b", "c"].map(VolumeName::from).into());
    let world = World::default().observe("first read", listed);
    let world = world.observe("account for c", Event::Accounted("c".into())).attach("a").detach("a");
    world.observe("identified", Event::Identified).is_story(expect![[r#"
        first read     [a, b, c]  []         publish
        account for c  [a, b]     []
        attach a       [a, b]     [a]        publish
        detach a       [b]        []         publish
        identified     [b]        []         publish
    "#]]);
}

/// The controller may have attached the volume before the node's object lists it.
#[test]
fn volume_found_on_disk_and_in_the_list_is_listed_until_it_is_gone() {
    let listed = Event::FirstRead(vec!["a".into()]);
    let world = World::default().observe("first read", listed).find("a").find("b");
    let world = world.want("a", true).unwant().apply("unstage", "a", Transition::DeviceUnmounted);
    world.detach("a").is_story(expect![[r#"
        first read     [a]        []         publish
        find a         [a]        [a]        publish
        find b         [a]        [a]
        want a         [a]        [a]
        pod ends       [a]        [a]
        unstage a      [a]        [a]
        detach a       []         []         publish
    "#]]);
}

#[test]
fn list_is_unknown_before_the_node_was_read() {
    let mut in_use = InUse::default();
    for progress in [Progress::Reconstructing, Progress::Comparing] {
        assert_eq!((in_use.list(progress), in_use.take_changed(progress)), (None, false));
    }
    assert!(in_use.take_changed(Progress::Identifying), "an empty list is published, too");
}
