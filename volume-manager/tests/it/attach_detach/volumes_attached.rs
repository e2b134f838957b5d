//! Writes of `volumesAttached`, with late answers and volumes or nodes that are deleted meanwhile.

use api::AttachedVolume;

use super::*;

#[tokio::test(start_paused = true)]
async fn writes_to_a_node_follow_each_other() {
    let control = Control::new().await;
    control.volume("data", AccessMode::ReadWriteOnce);
    control.volume("logs", AccessMode::ReadWriteOnce);
    control.api.set_late(Kind::Node, true);
    control.run("web", "one", &["data"]).await;
    control.run("db", "one", &["logs"]).await;
    control.sees(expect![[r#"
        attach data to one
        attach logs to one
        one lists [kubernetes.io/toy/data]
    "#]]);
    control.api.set_late(Kind::Node, false);
    control.pass(10).await;
    control.sees(expect![[r#"
        one lists [kubernetes.io/toy/data kubernetes.io/toy/logs]
    "#]]);
}

#[tokio::test(start_paused = true)]
async fn volume_wanted_again_before_detach_is_listed_again() {
    let control = Control::with_data_on_one().await;
    control.in_use("one", &[]).await;
    control.api.set_down(Kind::Node, true);
    control.end("web").await;
    control.api.set_down(Kind::Node, false);
    control.run("db", "one", &["data"]).await;
    control.pass(1000).await;
    control.sees(expect![[r#"
        attach data to one
        one lists [kubernetes.io/toy/data]
    "#]]);
}

#[tokio::test(start_paused = true)]
async fn node_keeps_listing_a_volume_that_is_attached_to_another() {
    let control = Control::new().await;
    control.volume("data", AccessMode::ReadWriteMany);
    control.run("web", "one", &["data"]).await;
    control.toy.hold("attach data to two");
    control.run("db", "two", &["data"]).await;
    control.in_use("one", &["data"]).await;
    control.sees(expect![[r#"
        attach data to one
        attach data to two
        one lists [kubernetes.io/toy/data]
    "#]]);
    control.toy.release("attach data to two");
}

#[tokio::test(start_paused = true)]
async fn returning_node_does_not_list_a_volume_being_detached() {
    let control = Control::with_data_on_one().await;
    control.toy.hold("detach data from one");
    control.api.remove(&Key::cluster(Kind::Node, "one"));
    control.pass(361_000).await;
    control.api.put(Object::Node(Arc::new(node("one"))));
    control.pass(10).await;
    control.sees(expect![[r#"
        attach data to one
        detach data from one
    "#]]);
    control.toy.release("detach data from one");
    control.pass(10).await;
    control.sees(expect![[r#"
        attach data to one
        one lists [kubernetes.io/toy/data]
    "#]]);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_attaches_by_itself_keeps_what_it_says_is_attached() {
    let mut control = Control::new().await;
    control.volume("data", AccessMode::ReadWriteOnce);
    let attached = AttachedVolume { name: unique("data"), device_path: String::new() };
    let by_itself = |node: &mut Node| {
        node.meta.annotations.clear();
        node.volumes_attached = vec![attached];
    };
    control.change("one", by_itself).await;
    control.restart().await;
    control.pass(3_600_000).await;
    control.sees(expect![[r#"
        one lists [kubernetes.io/toy/data]
    "#]]);
}

/// An answer confirms the written list. The rest of its object is not used, since the watch may be newer.
#[tokio::test(start_paused = true)]
async fn late_answer_does_not_restore_a_deleted_node() {
    let control = Control::new().await;
    control.volume("data", AccessMode::ReadWriteOnce);
    control.api.set_late(Kind::Node, true);
    control.run("web", "one", &["data"]).await;
    control.change("one", |node| node.volumes_in_use = vec![unique("data")]).await;
    control.api.remove(&Key::cluster(Kind::Node, "one"));
    control.api.set_late(Kind::Node, false);
    control.pass(359_000).await;
    assert_eq!(control.toy.story(), "attach data to one\n");
    control.pass(2_000).await;
    assert_eq!(control.toy.story(), "detach data from one\n");
}
