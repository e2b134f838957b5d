//! Changes while the watch is interrupted: the controller knows them as soon as it watches again, and retries with a
//! pause until then.

use api::CsiDriver;

use super::*;

#[tokio::test(start_paused = true)]
async fn a_claim_or_volume_that_went_unheard_is_wanted_no_more() {
    for gone in [Key::namespaced(Kind::Claim, "default", "data"), Key::cluster(Kind::Volume, "data")] {
        let control = Control::with_data_on_one().await;
        control.in_use("one", &[]).await;
        assert_eq!(control.toy.story(), "attach data to one\n");
        control.api.hang_up();
        control.api.remove(&gone);
        control.pass(1100).await;
        assert_eq!(control.toy.story(), "detach data from one\n", "{gone:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_went_unheard_is_not_ready() {
    let control = Control::with_data_on_one().await;
    control.in_use("one", &["data"]).await;
    control.toy.story();
    control.api.hang_up();
    control.api.remove(&Key::cluster(Kind::Node, "one"));
    control.pass(359_000).await;
    assert_eq!(control.toy.story(), "");
    control.pass(3_000).await;
    assert_eq!(control.toy.story(), "detach data from one\n");
}

#[tokio::test(start_paused = true)]
async fn a_drivers_object_that_went_unheard_says_nothing_any_more() {
    let control = Control::new().await;
    let meta = Meta::named("", "toy.example");
    let driver = CsiDriver { meta, attach_required: false, ..CsiDriver::default() };
    control.api.put(Object::CsiDriver(Arc::new(driver)));
    control.volume("data", AccessMode::ReadWriteOnce);
    control.run("web", "one", &["data"]).await;
    control.api.hang_up();
    control.api.remove(&Key::cluster(Kind::CsiDriver, "toy.example"));
    assert_eq!(control.toy.story(), "");
    control.pass(1100).await;
    assert_eq!(control.toy.story(), "attach data to one\n");
}

#[tokio::test(start_paused = true)]
async fn node_without_news_of_its_object_is_updated_once() {
    let control = Control::new().await;
    control.volume("data", AccessMode::ReadWriteOnce);
    control.toy.hold("attach data to one");
    control.run("web", "one", &["data"]).await;
    control.api.hang_up();
    control.toy.release("attach data to one");
    control.pass(100).await;
    control.sees(expect![[r#"
        attach data to one
        one lists [kubernetes.io/toy/data]
    "#]]);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_went_unheard_is_written_to_no_more_than_once_a_second() {
    let control = Control::new().await;
    control.volume("data", AccessMode::ReadWriteOnce);
    control.toy.hold("attach data to one");
    control.run("web", "one", &["data"]).await;
    control.api.hang_up();
    control.api.remove(&Key::cluster(Kind::Node, "one"));
    control.toy.release("attach data to one");
    control.pass(359_000).await;
    assert_eq!(control.toy.story(), "attach data to one\n");
    control.pass(3_000).await;
    assert_eq!(control.toy.story(), "detach data from one\n");
}
