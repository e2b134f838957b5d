//! The state that a controller takes over from an earlier one, and deleted objects.

use api::{Attachment, CsiDriver, Object};

use super::*;

impl Control {
    /// The attachment of a volume to a node, as an earlier controller leaves it.
    fn attachment(&self, volume: &str, node: &str) {
        let (volume, node) = (volume.to_owned(), node.to_owned());
        let meta = Meta::named("", format!("{volume}-{node}"));
        let attachment = Attachment { meta, volume, node, ..Attachment::default() };
        self.api.put(Object::Attachment(Arc::new(attachment)));
    }
}

#[tokio::test(start_paused = true)]
async fn unwanted_attachment_object_is_detached_after_a_restart() {
    let mut control = Control::new().await;
    control.volume("data", AccessMode::ReadWriteOnce);
    control.attachment("data", "one");
    control.attachment("unknown", "one");
    control.restart().await;
    control.sees(expect![[r#"
        detach data from one
    "#]]);
}

#[tokio::test(start_paused = true)]
async fn uncertain_attachment_is_confirmed_before_it_is_listed() {
    let mut control = Control::new().await;
    control.volume("data", AccessMode::ReadWriteOnce);
    control.attachment("data", "one");
    control.toy.hold("attach data to one");
    let mut web = pod("web", &["data"]);
    web.node = "one".to_owned();
    control.api.put(Object::Pod(Arc::new(web)));
    control.restart().await;
    control.sees(expect![[r#"
        attach data to one
    "#]]);
    control.toy.release("attach data to one");
    control.pass(10).await;
    control.sees(expect![[r#"
        one lists [kubernetes.io/toy/data]
    "#]]);
}

#[tokio::test(start_paused = true)]
async fn node_status_outranks_the_attachment_object() {
    let mut control = Control::with_data_on_one().await;
    control.in_use("one", &["data"]).await;
    control.attachment("data", "one");
    control.end("web").await;
    control.restart().await;
    control.pass(60_000).await;
    control.sees(expect![[r#"
        attach data to one
        one lists [kubernetes.io/toy/data]
    "#]]);
}

#[tokio::test(start_paused = true)]
async fn uncertain_attachment_stays_while_in_use() {
    let mut control = Control::new().await;
    control.volume("data", AccessMode::ReadWriteOnce);
    control.attachment("data", "one");
    control.in_use("one", &["data"]).await;
    control.restart().await;
    assert_eq!(control.toy.story(), "");
    control.in_use("one", &[]).await;
    assert_eq!(control.toy.story(), "detach data from one\n");
}

#[tokio::test(start_paused = true)]
async fn an_attachment_of_what_is_not_attached_is_nothing_to_take_away() {
    let mut control = Control::new().await;
    control.toy.set_attachable(false);
    control.volume("data", AccessMode::ReadWriteOnce);
    control.attachment("data", "one");
    control.restart().await;
    assert_eq!(control.toy.story(), "");
}

#[tokio::test(start_paused = true)]
async fn an_attachment_that_has_gone_before_is_not_remembered() {
    let mut control = Control::new().await;
    control.volume("data", AccessMode::ReadWriteOnce);
    control.attachment("data", "one");
    control.api.remove(&Key::cluster(Kind::Attachment, "data-one"));
    control.restart().await;
    assert_eq!(control.toy.story(), "");
}

#[tokio::test(start_paused = true)]
async fn an_attachment_that_goes_before_everything_was_seen_is_not_remembered() {
    for listening in [true, false] {
        let mut control = Control::new().await;
        control.volume("data", AccessMode::ReadWriteOnce);
        control.attachment("data", "one");
        control.api.set_down(Kind::Pod, true);
        control.restart().await;
        if !listening {
            control.api.hang_up();
        }
        control.api.remove(&Key::cluster(Kind::Attachment, "data-one"));
        control.pass(1500).await;
        control.api.set_down(Kind::Pod, false);
        control.pass(1000).await;
        assert_eq!(control.toy.story(), "", "{listening}");
        control.run("web", "one", &["data"]).await;
        assert_eq!(control.toy.story(), "attach data to one\n", "everything has been seen");
    }
}

#[tokio::test(start_paused = true)]
async fn adopted_attachment_is_verified_every_minute() {
    let mut control = Control::with_data_on_one().await;
    control.toy.story();
    control.toy.set_lost(true);
    control.restart().await;
    control.pass(59_000).await;
    assert_eq!(control.toy.story(), "");
    control.pass(1_000).await;
    assert_eq!(control.toy.story(), "attach data to one\n");
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_claim_or_volume_goes_wants_nothing_attached() {
    for gone in [Key::namespaced(Kind::Claim, "default", "data"), Key::cluster(Kind::Volume, "data")] {
        let control = Control::with_data_on_one().await;
        control.in_use("one", &[]).await;
        assert_eq!(control.toy.story(), "attach data to one\n");
        control.api.remove(&gone);
        control.pass(10).await;
        assert_eq!(control.toy.story(), "detach data from one\n", "{gone:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn deleted_node_is_not_updated_before_a_detach() {
    let control = Control::with_data_on_one().await;
    control.in_use("one", &["data"]).await;
    control.api.remove(&Key::cluster(Kind::Node, "one"));
    control.pass(359_000).await;
    assert_eq!(control.toy.story(), "attach data to one\n");
    control.pass(2_000).await;
    assert_eq!(control.toy.story(), "detach data from one\n");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_decided_before_everything_was_seen() {
    for unseen in [Kind::Pod, Kind::Claim, Kind::Volume, Kind::Attachment, Kind::CsiDriver] {
        let mut control = Control::with_data_on_one().await;
        control.in_use("one", &[]).await;
        assert_eq!(control.toy.story(), "attach data to one\n");
        control.api.set_down(unseen, true);
        control.restart().await;
        control.pass(10_000).await;
        assert_eq!(control.toy.story(), "", "{unseen}");
        // The pod may have been deleted meanwhile.
        control.api.remove(&Key::namespaced(Kind::Pod, "default", "web"));
        control.api.set_down(unseen, false);
        control.pass(1000).await;
        assert_eq!(control.toy.story(), "detach data from one\n", "{unseen}");
    }
}

#[tokio::test(start_paused = true)]
async fn attach_required_of_the_driver_object_is_followed() {
    let control = Control::new().await;
    let meta = Meta::named("", "toy.example");
    let driver = CsiDriver { meta, attach_required: false, ..CsiDriver::default() };
    control.api.put(Object::CsiDriver(Arc::new(driver)));
    control.volume("data", AccessMode::ReadWriteOnce);
    control.run("web", "one", &["data"]).await;
    assert_eq!(control.toy.story(), "");
    control.api.remove(&Key::cluster(Kind::CsiDriver, "toy.example"));
    control.pass(10).await;
    assert_eq!(control.toy.story(), "attach data to one\n");
}
