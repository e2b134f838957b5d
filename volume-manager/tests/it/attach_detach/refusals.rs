//! Volumes that are not attached, or not detached at once, with their events.

use api::storage::ClaimTemplate;
use api::{Attachment, Claim, ClaimPhase, PodVolume, VolumeSource};

use super::*;

impl Control {
    async fn claim(&self, name: &str, change: impl FnOnce(&mut Claim)) {
        let mut claim = (*get::<Claim>(&*self.api, "default", name).await.expect("it is there")).clone();
        change(&mut claim);
        self.api.put(Object::Claim(Arc::new(claim)));
        self.pass(10).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_detach_that_fails_is_repeated_and_what_is_wanted_again_meanwhile_is_attached_again() {
    let control = Control::with_data_on_one().await;
    control.in_use("one", &[]).await;
    control.toy.fail("detach data from one", &[Final, Final]);
    control.end("web").await;
    control.pass(600).await;
    control.sees(expect![[r#"
        attach data to one
        detach data from one
          Final
        detach data from one
          Final
    "#]]);
    // After a failed detach the attachment is uncertain: the node's list has it only when the volume is certainly attached
    // again.
    control.toy.hold("attach data to one");
    control.run("db", "one", &["data"]).await;
    control.pass(600).await;
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
async fn detaching_volume_is_not_listed_as_attached() {
    let control = Control::with_data_on_one().await;
    control.in_use("one", &[]).await;
    control.toy.hold("detach data from one");
    control.end("web").await;
    control.run("db", "one", &["data"]).await;
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
async fn a_node_that_attaches_by_itself_is_left_alone() {
    let control = Control::new().await;
    control.change("one", |node| node.meta.annotations.clear()).await;
    control.volume("data", AccessMode::ReadWriteOnce);
    control.run("web", "one", &["data"]).await;
    control.sees(expect![[""]]);
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_is_not_bound_to_the_volume_gets_nothing_attached() {
    for (spoil, mend) in [
        (
            (|claim| claim.status.phase = ClaimPhase::Pending) as fn(&mut Claim),
            (|claim| claim.status.phase = ClaimPhase::Bound) as fn(&mut Claim),
        ),
        (|claim| claim.meta.uid = "of another".to_owned(), |claim| claim.meta.uid = "uid-data".to_owned()),
    ] {
        let control = Control::new().await;
        control.volume("data", AccessMode::ReadWriteOnce);
        control.claim("data", spoil).await;
        control.run("web", "one", &["data"]).await;
        assert_eq!(control.toy.story(), "");
        control.claim("data", mend).await;
        assert_eq!(control.toy.story(), "attach data to one\n");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pods_own_claim_is_attached_and_what_is_no_claim_is_not() {
    let control = Control::new().await;
    control.volume("web-own", AccessMode::ReadWriteOnce);
    let mut web = pod("web", &[]);
    web.node = "one".to_owned();
    let own = VolumeSource::Ephemeral { template: Box::new(ClaimTemplate::default()) };
    let secret = VolumeSource::Secret(Default::default());
    web.volumes = vec![
        PodVolume { name: "secret".into(), source: secret },
        PodVolume { name: "own".into(), source: own },
    ];
    control.api.put(Object::Pod(Arc::new(web)));
    control.pass(10).await;
    assert_eq!(control.toy.story(), "attach web-own to one\n");
}

#[tokio::test(start_paused = true)]
async fn volume_without_attach_is_not_attached() {
    let control = Control::new().await;
    control.toy.set_attachable(false);
    control.volume("data", AccessMode::ReadWriteOnce);
    control.run("web", "one", &["data"]).await;
    assert_eq!(control.toy.story(), "");
}

#[tokio::test(start_paused = true)]
async fn each_conflict_has_one_event() {
    let control = Control::with_data_on_one().await;
    control.in_use("one", &["data"]).await;
    control.end("web").await;
    control.run("db", "two", &["data"]).await;
    control.pass(120_000).await;
    control.end("db").await;
    control.run("again", "two", &["data"]).await;
    expect![[r#"
        again FailedAttachVolume: Multi-Attach error for volume "data" Volume is already exclusively attached to one node and can't be attached to another
        db FailedAttachVolume: Multi-Attach error for volume "data" Volume is already exclusively attached to one node and can't be attached to another
        web SuccessfulAttachVolume: AttachVolume.Attach succeeded for volume "data" 
    "#]]
    .assert_eq(&control.events());
    let before = control.api.all(Kind::Notification);
    control.in_use("one", &["data"]).await;
    control.pass(120_000).await;
    assert_eq!(before, control.api.all(Kind::Notification), "nothing is written again");
}

#[tokio::test(start_paused = true)]
async fn without_force_a_node_that_is_gone_keeps_what_it_uses() {
    let control = Control::with(AttachDetachConfig { force_detach: false });
    control.volume("data", AccessMode::ReadWriteOnce);
    control.run("web", "one", &["data"]).await;
    control.in_use("one", &["data"]).await;
    control.change("one", |node| node.ready = false).await;
    control.end("web").await;
    control.pass(3_600_000).await;
    control.sees(expect![[r#"
        attach data to one
        one lists [kubernetes.io/toy/data]
    "#]]);
}

#[tokio::test(start_paused = true)]
async fn unreachable_taint_does_not_force_a_detach() {
    let control = Control::with_data_on_one().await;
    control.in_use("one", &["data"]).await;
    control.end("web").await;
    let taint = Taint { key: "node.kubernetes.io/unreachable".into(), ..Taint::default() };
    control.change("one", |node| node.taints = vec![taint]).await;
    control.pass(3_600_000).await;
    assert_eq!(control.toy.story(), "attach data to one\n");
}

/// A volume that was unwanted for a while and wanted again has a new six minutes when it is unwanted once more.
#[tokio::test(start_paused = true)]
async fn the_six_minutes_begin_when_the_last_pod_has_gone() {
    let control = Control::with_data_on_one().await;
    control.in_use("one", &["data"]).await;
    control.change("one", |node| node.ready = false).await;
    control.end("web").await;
    control.pass(300_000).await;
    control.run("db", "one", &["data"]).await;
    control.pass(300_000).await;
    control.end("db").await;
    control.pass(300_000).await;
    assert_eq!(control.toy.story(), "attach data to one\n");
    control.pass(61_000).await;
    assert_eq!(control.toy.story(), "detach data from one\n");
}

/// A volume whose attachment cannot be read counts as attached; the others are checked all the same.
#[tokio::test(start_paused = true)]
async fn unverifiable_volume_stays_attached() {
    use api::error::ErrorClass::Transient;
    let control = Control::with_data_on_one().await;
    control.volume("logs", AccessMode::ReadWriteOnce);
    control.run("db", "one", &["logs"]).await;
    control.toy.story();
    control.toy.fail("look for data on one", &[Transient]);
    control.toy.set_lost(true);
    control.pass(60_000).await;
    control.toy.set_lost(false);
    assert_eq!(control.toy.story(), "  Transient\nattach logs to one\n");
}

/// Ten thousand attachments are not read each minute: their watch shows that they are there.
#[tokio::test(start_paused = true)]
async fn attachment_that_is_seen_is_not_asked_for() {
    let control = Control::with_data_on_one().await;
    let attachment = |attached| Attachment {
        meta: Meta::named("", "of-data"),
        node: "one".to_owned(),
        volume: "data".to_owned(),
        attached,
        ..Attachment::default()
    };
    control.api.put(Object::Attachment(Arc::new(attachment(true))));
    control.toy.story();
    control.toy.set_lost(true);
    control.pass(600_000).await;
    assert_eq!(control.toy.story(), "");
    control.api.put(Object::Attachment(Arc::new(attachment(false))));
    control.pass(60_000).await;
    control.toy.set_lost(false);
    assert_eq!(control.toy.story(), "attach data to one\n");
}

#[tokio::test(start_paused = true)]
async fn a_detach_hurries_no_other_nodes_attempts() {
    let control = Control::new().await;
    control.volume("data", AccessMode::ReadWriteMany);
    control.run("web", "one", &["data"]).await;
    control.in_use("one", &[]).await;
    control.toy.story();
    control.toy.fail("attach data to two", &[Final, Final, Final]);
    control.run("db", "two", &["data"]).await;
    control.pass(1600).await;
    assert_eq!(control.toy.story(), "attach data to two\n  Final\n".repeat(3));
    control.end("web").await;
    control.pass(1000).await;
    assert_eq!(control.toy.story(), "detach data from one\n", "two waits for two seconds");
    control.pass(1000).await;
    assert_eq!(control.toy.story(), "attach data to two\n");
}

#[tokio::test(start_paused = true)]
async fn every_pod_that_waits_for_an_attachment_gets_its_event() {
    let control = Control::new().await;
    for name in ["web", "db"] {
        control.run(name, "one", &["data"]).await;
    }
    control.toy.fail("attach data to one", &[Final]);
    control.volume("data", AccessMode::ReadWriteOnce);
    control.pass(600).await;
    expect![[r#"
        db FailedAttachVolume: AttachVolume.Attach failed for volume "data" : attach data to one fails on order
        db SuccessfulAttachVolume: AttachVolume.Attach succeeded for volume "data" 
        web FailedAttachVolume: AttachVolume.Attach failed for volume "data" : attach data to one fails on order
        web SuccessfulAttachVolume: AttachVolume.Attach succeeded for volume "data" 
    "#]].assert_eq(&control.events());
}
