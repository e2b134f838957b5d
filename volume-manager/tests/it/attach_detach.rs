//! The attach/detach controller: its operations, and the protection of volumes that a node uses.

mod again;
mod cost;
mod refusals;
mod restart;
mod unheard;
mod volumes_attached;

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use api::clock::TokioClock;
use api::error::ErrorClass::Final;
use api::{AccessMode, ApiSource, Key, Kind, Meta, Node, Object, Patch, PatchBody, Taint, get};
use expect_test::{Expect, expect};
use plugin_api::registry::Registry;
use volume_manager::controller::attach_detach::{AttachDetach, AttachDetachConfig};

use crate::world::{pod, put_volume, unique, volume};
use testing::{MemoryApi, Toy};

struct Control {
    api: Arc<MemoryApi>,
    toy: Toy,
    controller: AttachDetach,
    /// `volumesAttached` of each node at the last look.
    seen: RefCell<[String; 2]>,
}

impl Control {
    /// Two nodes, and a controller.
    async fn new() -> Self {
        Self::with(AttachDetachConfig::default())
    }

    fn with(config: AttachDetachConfig) -> Self {
        let (api, toy) = (Arc::new(MemoryApi::default()), Toy::default());
        toy.set_attachable(true);
        for name in ["one", "two"] {
            api.put(Object::Node(Arc::new(node(name))));
        }
        let controller = start(config, &api, &toy);
        let seen = ["one", "two"].map(|name| format!("{name} lists []\n"));
        Self { api, toy, controller, seen: RefCell::new(seen) }
    }

    /// A controller with the volume `data`, for one node alone, and its pod `web` on the node `one`.
    async fn with_data_on_one() -> Self {
        let control = Self::new().await;
        control.volume("data", AccessMode::ReadWriteOnce);
        control.run("web", "one", &["data"]).await;
        control
    }

    async fn restart(&mut self) {
        self.controller = start(AttachDetachConfig::default(), &self.api, &self.toy);
        self.pass(10).await;
    }

    fn volume(&self, name: &str, mode: AccessMode) {
        let mut volume = volume(name);
        volume.access_modes = vec![mode];
        put_volume(&self.api, volume);
    }

    async fn run(&self, name: &str, on: &str, claims: &[&str]) {
        let mut pod = pod(name, claims);
        pod.node = on.to_owned();
        self.api.put(Object::Pod(Arc::new(pod)));
        self.pass(10).await;
    }

    async fn end(&self, name: &str) {
        self.api.remove(&Key::namespaced(Kind::Pod, "default", name));
        self.pass(10).await;
    }

    async fn in_use(&self, node: &str, volumes: &[&str]) {
        let volumes = volumes.iter().map(|name| unique(name)).collect();
        let patch = Patch::of(Key::cluster(Kind::Node, node), PatchBody::VolumesInUse(volumes));
        self.api.patch(patch).await.expect("the node is there");
        self.pass(10).await;
    }

    async fn change(&self, node: &str, change: impl FnOnce(&mut Node)) {
        let mut object = (*get::<Node>(&*self.api, "", node).await.expect("it is there")).clone();
        change(&mut object);
        self.api.put(Object::Node(Arc::new(object)));
        self.pass(10).await;
    }

    async fn pass(&self, milliseconds: u64) {
        tokio::time::sleep(Duration::from_millis(milliseconds)).await;
    }

    /// Compares the operations since the last look, and `volumesAttached` of each node whose list has changed.
    fn sees(&self, expected: Expect) {
        let mut text = self.toy.story();
        let mut seen = self.seen.borrow_mut();
        for (name, seen) in ["one", "two"].into_iter().zip(&mut *seen) {
            let node: Node = self.api.read("", name).expect("it is there");
            let attached: Vec<_> =
                node.volumes_attached.iter().map(|attached| attached.name.as_str()).collect();
            let listed = format!("{name} lists [{}]\n", attached.join(" "));
            if listed != *seen {
                text.push_str(&listed);
                *seen = listed;
            }
        }
        expected.assert_eq(&text);
    }

    fn events(&self) -> String {
        let events = self.api.all(Kind::Notification);
        let lines = events.iter().map(|object| match object {
            Object::Notification(event) => {
                format!("{} {}: {}\n", event.about.name, event.reason, event.message)
            }
            _ => unreachable!("only events were asked for"),
        });
        lines.collect()
    }
}

fn node(name: &str) -> Node {
    let mut meta = Meta::named("", name);
    meta.annotations.insert("volumes.kubernetes.io/controller-managed-attach-detach".into(), "true".into());
    Node { meta, ready: true, ..Node::default() }
}

fn start(config: AttachDetachConfig, api: &Arc<MemoryApi>, toy: &Toy) -> AttachDetach {
    let registry = Registry::new(vec![Arc::new(toy.clone())]);
    AttachDetach::start(config, Arc::clone(api) as _, TokioClock::shared(), registry)
}

#[tokio::test(start_paused = true)]
async fn volume_is_attached_for_a_pod_and_listed_by_the_node() {
    let control = Control::with_data_on_one().await;
    control.sees(expect![[r#"
        attach data to one
        one lists [kubernetes.io/toy/data]
    "#]]);
    expect![[r#"
        web SuccessfulAttachVolume: AttachVolume.Attach succeeded for volume "data" 
    "#]]
    .assert_eq(&control.events());
}

#[tokio::test(start_paused = true)]
async fn a_volume_in_use_is_never_taken_away() {
    let control = Control::with_data_on_one().await;
    control.in_use("one", &["data"]).await;
    control.end("web").await;
    control.pass(3_600_000).await;
    control.sees(expect![[r#"
        attach data to one
        one lists [kubernetes.io/toy/data]
    "#]]);
    control.toy.hold("detach data from one");
    control.in_use("one", &[]).await;
    control.sees(expect![[r#"
        detach data from one
        one lists []
    "#]]);
    control.toy.release("detach data from one");
}

#[tokio::test(start_paused = true)]
async fn volume_is_not_detached_until_the_status_is_written() {
    let control = Control::with_data_on_one().await;
    control.in_use("one", &[]).await;
    control.api.set_down(Kind::Node, true);
    control.end("web").await;
    control.pass(60_000).await;
    control.api.set_down(Kind::Node, false);
    control.sees(expect![[r#"
        attach data to one
        one lists [kubernetes.io/toy/data]
    "#]]);
    control.pass(1000).await;
    control.sees(expect![[r#"
        detach data from one
        one lists []
    "#]]);
}

/// A write without an answer is given up at its deadline and repeated.
#[tokio::test(start_paused = true)]
async fn node_write_without_an_answer_is_repeated() {
    let control = Control::new().await;
    control.volume("data", AccessMode::ReadWriteOnce);
    control.api.set_silent(Kind::Node, true);
    control.run("web", "one", &["data"]).await;
    control.api.set_silent(Kind::Node, false);
    control.pass(32_000).await;
    control.sees(expect![[r#"
        attach data to one
        one lists [kubernetes.io/toy/data]
    "#]]);
}

/// A write without an answer may have taken effect: it is repeated, and nothing is detached before that has succeeded.
#[tokio::test(start_paused = true)]
async fn nothing_is_detached_while_the_written_list_is_unknown() {
    let control = Control::new().await;
    control.volume("data", AccessMode::ReadWriteOnce);
    control.api.set_silent(Kind::Node, true);
    control.run("web", "one", &["data"]).await;
    // The watch reports the node's object again, with an empty `volumesInUse`.
    control.api.put(Object::Node(Arc::new(node("one"))));
    control.end("web").await;
    control.pass(120_000).await;
    assert_eq!(control.toy.story(), "attach data to one\n");
    control.api.set_silent(Kind::Node, false);
    control.pass(32_000).await;
    control.sees(expect![[r#"
        detach data from one
    "#]]);
}

#[tokio::test(start_paused = true)]
async fn a_volume_for_one_node_moves_only_when_the_first_has_let_go() {
    let control = Control::with_data_on_one().await;
    control.in_use("one", &["data"]).await;
    control.run("db", "two", &["data"]).await;
    control.sees(expect![[r#"
        attach data to one
        one lists [kubernetes.io/toy/data]
    "#]]);
    expect![[r#"
        db FailedAttachVolume: Multi-Attach error for volume "data" Volume is already used by pod(s) web
        web SuccessfulAttachVolume: AttachVolume.Attach succeeded for volume "data" 
    "#]]
    .assert_eq(&control.events());
    control.end("web").await;
    control.in_use("one", &[]).await;
    control.sees(expect![[r#"
        detach data from one
        attach data to two
        one lists []
        two lists [kubernetes.io/toy/data]
    "#]]);
}

#[tokio::test(start_paused = true)]
async fn a_volume_for_many_nodes_is_attached_to_many() {
    let control = Control::new().await;
    control.volume("data", AccessMode::ReadWriteMany);
    control.run("web", "one", &["data"]).await;
    control.run("db", "two", &["data"]).await;
    control.sees(expect![[r#"
        attach data to one
        attach data to two
        one lists [kubernetes.io/toy/data]
        two lists [kubernetes.io/toy/data]
    "#]]);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_gone_for_six_minutes_loses_its_volumes() {
    let control = Control::with_data_on_one().await;
    control.in_use("one", &["data"]).await;
    control.change("one", |node| node.ready = false).await;
    control.end("web").await;
    control.pass(359_000).await;
    control.sees(expect![[r#"
        attach data to one
        one lists [kubernetes.io/toy/data]
    "#]]);
    control.pass(2_000).await;
    control.sees(expect![[r#"
        detach data from one
        one lists []
    "#]]);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_declared_gone_loses_them_at_once() {
    let control = Control::with_data_on_one().await;
    control.in_use("one", &["data"]).await;
    control.end("web").await;
    let taint = Taint { key: "node.kubernetes.io/out-of-service".into(), ..Taint::default() };
    control.change("one", |node| node.taints = vec![taint]).await;
    control.sees(expect![[r#"
        attach data to one
        detach data from one
    "#]]);
}

#[tokio::test(start_paused = true)]
async fn failures_climb_the_ladder_and_have_events() {
    let control = Control::new().await;
    control.volume("data", AccessMode::ReadWriteOnce);
    control.toy.fail("attach data to one", &[Final, Final]);
    control.run("web", "one", &["data"]).await;
    control.pass(1490).await;
    control.sees(expect![[r#"
        attach data to one
          Final
        attach data to one
          Final
    "#]]);
    control.pass(100).await;
    control.sees(expect![[r#"
        attach data to one
        one lists [kubernetes.io/toy/data]
    "#]]);
    expect![[r#"
        web FailedAttachVolume: AttachVolume.Attach failed for volume "data" : attach data to one fails on order
        web FailedAttachVolume: AttachVolume.Attach failed for volume "data" : attach data to one fails on order
        web SuccessfulAttachVolume: AttachVolume.Attach succeeded for volume "data" 
    "#]].assert_eq(&control.events());
}

#[tokio::test(start_paused = true)]
async fn restarted_controller_believes_the_lists_of_nodes() {
    let mut control = Control::new().await;
    control.volume("data", AccessMode::ReadWriteOnce);
    control.run("web", "one", &["data"]).await;
    control.in_use("one", &["data"]).await;
    control.restart().await;
    control.sees(expect![[r#"
        attach data to one
        one lists [kubernetes.io/toy/data]
    "#]]);
    control.end("web").await;
    control.in_use("one", &[]).await;
    control.sees(expect![[r#"
        detach data from one
        one lists []
    "#]]);
}

#[tokio::test(start_paused = true)]
async fn pods_that_are_over_want_nothing() {
    let control = Control::new().await;
    control.volume("data", AccessMode::ReadWriteOnce);
    let mut web = pod("web", &["data"]);
    web.node = "one".to_owned();
    web.phase = "Succeeded".to_owned();
    control.api.put(Object::Pod(Arc::new(web)));
    control.pass(10).await;
    control.sees(expect![[""]]);
}

/// Kubernetes detaches as soon as such a pod has no running container.
#[tokio::test(start_paused = true)]
async fn a_pod_that_is_being_deleted_keeps_its_volumes_until_it_is_over_or_gone() {
    for goes in [true, false] {
        let control = Control::with_data_on_one().await;
        control.in_use("one", &[]).await;
        let mut web = pod("web", &["data"]);
        web.node = "one".to_owned();
        web.meta.deleted = Some("2026-01-01T00:00:00Z".to_owned());
        control.api.put(Object::Pod(Arc::new(web.clone())));
        control.pass(3_600_000).await;
        control.sees(expect![[r#"
                attach data to one
                one lists [kubernetes.io/toy/data]
            "#]]);
        if goes {
            control.end("web").await;
        } else {
            web.phase = "Succeeded".to_owned();
            control.api.put(Object::Pod(Arc::new(web)));
            control.pass(10).await;
        }
        control.sees(expect![[r#"
                detach data from one
                one lists []
            "#]]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_attachment_that_vanishes_is_made_again() {
    let control = Control::with_data_on_one().await;
    for _ in 0..2 {
        control.toy.set_lost(true);
        control.pass(60_000).await;
        control.toy.set_lost(false);
    }
    control.sees(expect![[r#"
        attach data to one
        attach data to one
        attach data to one
        one lists [kubernetes.io/toy/data]
    "#]]);
}

#[tokio::test(start_paused = true)]
async fn pod_deleted_during_a_hang_up_is_detached() {
    let control = Control::with_data_on_one().await;
    control.toy.story();
    control.api.hang_up();
    control.end("web").await;
    control.sees(expect![[r#"
        one lists [kubernetes.io/toy/data]
    "#]]);
    control.pass(1000).await;
    control.sees(expect![[r#"
        detach data from one
        one lists []
    "#]]);
}

/// The new object does not have the list of the old one.
#[tokio::test(start_paused = true)]
async fn unwanted_volume_is_detached_from_a_recreated_node() {
    let control = Control::with_data_on_one().await;
    control.toy.story();
    control.api.remove(&Key::cluster(Kind::Node, "one"));
    control.api.put(Object::Node(Arc::new(node("one"))));
    control.end("web").await;
    control.sees(expect![[r#"
        detach data from one
    "#]]);
}
