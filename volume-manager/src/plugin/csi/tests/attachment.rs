//! The controller's side of attachments: made, waited for and deleted.

use std::time::Duration;

use api::names::AttachmentName;
use api::storage::AttachmentError;
use api::{Attachment, Key, Kind, Meta, Resource};
use plugin_api::error::Failure;
use plugin_api::{Attacher, Changes, Remote};

use crate::plugin::csi::CsiPlugin;
use crate::plugin::testing::{Bench, DRIVER};

const TIME: Duration = Duration::from_secs(120);

struct Scene {
    bench: Bench,
}

impl Scene {
    fn set() -> Self {
        let scene = Self { bench: Bench::new() };
        scene.bench.object(|driver| driver.attach_required = true);
        scene
    }

    fn name() -> String {
        AttachmentName::of(&"h".into(), &DRIVER.into(), &"node-2".into()).to_string()
    }

    fn key() -> Key {
        Key::cluster(Kind::Attachment, Self::name())
    }

    fn attachment(&self) -> Option<Attachment> {
        self.bench.api.read("", &Self::name())
    }

    /// Changes the attachment as the controller would; makes it if it does not exist.
    fn change(&self, change: impl FnOnce(&mut Attachment)) {
        let mut attachment = self.attachment().unwrap_or_default();
        attachment.meta.name = Self::name();
        change(&mut attachment);
        self.bench.put(attachment.into_object());
    }

    /// Lets something happen after some seconds of `acting`. What came of that, and when.
    async fn meanwhile<T>(
        &self,
        acting: impl Future<Output = Result<T, Failure>>,
        after: f64,
        happens: impl FnOnce(),
    ) -> (Result<T, String>, Duration) {
        let clock = &self.bench.context.clock;
        let began = clock.now();
        let happening = async {
            clock.sleep(Duration::from_secs_f64(after)).await;
            happens();
        };
        let acted = async { (acting.await, clock.now() - began) };
        let ((result, took), ()) = tokio::join!(acted, happening);
        (result.map_err(|failure| failure.chain()), took)
    }

    async fn attach(&self, after: f64, happens: impl FnOnce()) -> (Result<String, String>, Duration) {
        let (facts, cx) = (self.bench.context.facts(), &self.bench.context);
        let remote = Remote { api: &*cx.api, clock: &*cx.clock, facts: &facts, changes: &Changes::default() };
        let (plugin, node) = (CsiPlugin::new(), "node-2".into());
        self.meanwhile(plugin.attach(&remote, &self.bench.spec, &node), after, happens).await
    }

    async fn detach(
        &self,
        volume: &str,
        after: f64,
        happens: impl FnOnce(),
    ) -> (Result<(), String>, Duration) {
        let (facts, cx) = (self.bench.context.facts(), &self.bench.context);
        let remote = Remote { api: &*cx.api, clock: &*cx.clock, facts: &facts, changes: &Changes::default() };
        let (plugin, node) = (CsiPlugin::new(), "node-2".into());
        self.meanwhile(plugin.detach(&remote, volume, &node), after, happens).await
    }

    async fn is_attached(&self) -> Result<bool, String> {
        let (facts, cx) = (self.bench.context.facts(), &self.bench.context);
        let remote = Remote { api: &*cx.api, clock: &*cx.clock, facts: &facts, changes: &Changes::default() };
        let attached = CsiPlugin::new().is_attached(&remote, &self.bench.spec, &"node-2".into()).await;
        attached.map_err(|failure| failure.chain())
    }
}

fn said(message: &str) -> Option<AttachmentError> {
    Some(AttachmentError { message: message.to_owned(), code: None })
}

#[tokio::test(start_paused = true)]
async fn an_attachment_is_made_and_names_the_driver_the_node_and_the_volume() {
    let scene = Scene::set();
    let (attached, _) = scene.attach(3.0, || scene.change(|attachment| attachment.attached = true)).await;
    assert_eq!(attached, Ok(String::new()), "only the node knows where the device is");
    let expected = Attachment {
        // The versions at its creation and after the attacher's change.
        meta: Meta { resource_version: "2".to_owned(), ..Meta::named("", Scene::name()) },
        attacher: DRIVER.to_owned(),
        node: "node-2".to_owned(),
        volume: "pv".to_owned(),
        attached: true,
        ..Attachment::default()
    };
    assert_eq!(scene.attachment(), Some(expected));
}

#[tokio::test(start_paused = true)]
async fn looks_come_at_once_and_then_less_often() {
    for (attached_after, seen_after) in [(0.4, 0.5), (0.6, 1.025), (1.1, 1.576_25), (1.6, 2.155_062_5)] {
        let scene = Scene::set();
        let (result, took) =
            scene.attach(attached_after, || scene.change(|attachment| attachment.attached = true)).await;
        assert_eq!(result, Ok(String::new()));
        assert!((took.as_secs_f64() - seen_after).abs() < 0.01, "{attached_after}: {took:?}");
    }
    let scene = Scene::set();
    scene.change(|attachment| attachment.attached = true);
    let (result, took) = scene.attach(0.0, || {}).await;
    assert_eq!((result, took), (Ok(String::new()), Duration::ZERO), "one that exists already is as good");
}

#[tokio::test(start_paused = true)]
async fn attach_error_ends_the_wait_and_a_missing_attachment_does_not() {
    let scene = Scene::set();
    let (result, took) =
        scene.attach(3.0, || scene.change(|attachment| attachment.attach_error = said("no room"))).await;
    assert_eq!(result, Err("no room".to_owned()));
    assert!(took < TIME);

    let scene = Scene::set();
    let deleted = Some("2026-01-01T00:00:00Z".to_owned());
    let (result, took) = scene
        .attach(3.0, || {
            scene.change(|attachment| (attachment.meta.deleted, attachment.attached) = (deleted, true));
        })
        .await;
    assert_eq!(result, Err("volume attachment is being deleted".to_owned()));
    assert!(took < TIME);

    for happens in [Scene::take_away as fn(&Scene), Scene::silence] {
        let scene = Scene::set();
        let (result, took) = scene.attach(3.0, || happens(&scene)).await;
        let text = "timed out waiting for external-attacher of d.example CSI driver to attach volume h";
        assert_eq!(result, Err(text.to_owned()));
        assert!(took > TIME - Duration::from_secs(7) && took <= TIME, "{took:?}");
    }
}

impl Scene {
    fn take_away(&self) {
        self.bench.api.remove(&Self::key());
    }

    fn silence(&self) {
        self.bench.api.set_away(true);
    }
}

#[tokio::test(start_paused = true)]
async fn an_attachment_that_cannot_be_made_is_not_waited_for() {
    let scene = Scene::set();
    scene.silence();
    let (result, took) = scene.attach(0.0, || {}).await;
    assert_eq!(result, Err("the API server did not answer: connection refused".to_owned()));
    assert_eq!(took, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_volume_is_detached_when_its_attachment_has_gone() {
    let scene = Scene::set();
    scene.bench.api.keep_deleted();
    scene.change(|attachment| attachment.attached = true);
    let (result, took) = scene.detach("d.example^h", 3.0, || scene.take_away()).await;
    assert_eq!(result, Ok(()));
    assert!(took >= Duration::from_secs(3) && took < TIME, "{took:?}");
    let (result, took) = scene.detach("d.example^h", 0.0, || {}).await;
    assert_eq!((result, took), (Ok(()), Duration::ZERO), "there is nothing to take away");
}

#[tokio::test(start_paused = true)]
async fn a_detach_ends_with_what_the_driver_says_or_after_its_time() {
    for (happens, text, at_once) in [
        (Scene::refuse as fn(&Scene), "it is busy", true),
        (
            Scene::silence,
            "timed out waiting for external-attacher of d.example CSI driver to detach volume h",
            false,
        ),
        (
            Scene::leave,
            "timed out waiting for external-attacher of d.example CSI driver to detach volume h",
            false,
        ),
    ] {
        let scene = Scene::set();
        scene.bench.api.keep_deleted();
        scene.change(|attachment| attachment.attached = true);
        let (result, took) = scene.detach("d.example^h", 3.0, || happens(&scene)).await;
        assert_eq!(result, Err(text.to_owned()));
        assert_eq!(took < TIME - Duration::from_secs(7), at_once, "{text}: {took:?}");
        assert!(scene.attachment().is_some_and(|attachment| attachment.meta.is_deleting()));
    }
}

impl Scene {
    fn refuse(&self) {
        self.change(|attachment| attachment.detach_error = said("it is busy"));
    }

    /// The controller does nothing.
    fn leave(&self) {}
}

#[tokio::test(start_paused = true)]
async fn a_detach_that_cannot_be_asked_for_fails_and_what_is_no_name_is_not_guessed() {
    let scene = Scene::set();
    scene.change(|attachment| attachment.attached = true);
    for volume in ["h", "d.example^", "d.example^h^x", ""] {
        let (result, _) = scene.detach(volume, 0.0, || {}).await;
        assert_eq!(result, Err(format!("cannot detach `{volume}`: it names no driver and volume")));
    }
    scene.silence();
    let (result, took) = scene.detach("d.example^h", 0.0, || {}).await;
    assert_eq!(result, Err("the API server did not answer: connection refused".to_owned()));
    assert_eq!(took, Duration::ZERO);
    assert!(scene.attachment().is_some());
}

#[tokio::test(start_paused = true)]
async fn it_is_attached_if_its_attachment_says_so_or_it_needs_none() {
    let scene = Scene::set();
    assert_eq!(scene.is_attached().await, Ok(false), "there is no attachment");
    scene.change(|attachment| attachment.attached = false);
    assert_eq!(scene.is_attached().await, Ok(false));
    scene.change(|attachment| attachment.attached = true);
    assert_eq!(scene.is_attached().await, Ok(true));
    scene.silence();
    assert!(scene.is_attached().await.is_err(), "not known is not detached");
    scene.bench.object(|driver| driver.attach_required = false);
    assert_eq!(scene.is_attached().await, Ok(true));
}
