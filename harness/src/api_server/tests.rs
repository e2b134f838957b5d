//! The store, directly and through a socket, and the controllers on it.

use std::time::Duration;

use api::clock::TokioClock;
use api::storage::ClaimSpec;
use api::{
    Change, Claim, Key, Kind, Meta, Node, Notification, Pod, PodVolume, Reference, Service, Severity,
    VolumeSource,
};
use cluster::Protection;
use contracts::event::Client;

use super::*;
use crate::Layout;
use crate::symbols::Symbols;

fn api_server() -> ApiServer {
    ApiServer::new(Journal::new(Symbols::new(Layout::standard()), None))
}

fn claim(name: &str) -> Claim {
    Claim { meta: Meta::named("default", name), spec: ClaimSpec::default(), ..Claim::default() }
}

fn pod(name: &str, claim: &str) -> Pod {
    let source = VolumeSource::Claim { claim: claim.to_owned(), read_only: false };
    let volumes = vec![PodVolume { name: "data".into(), source }];
    Pod { meta: Meta::named("default", name), volumes, ..Pod::default() }
}

#[test]
fn a_stale_write_is_refused() {
    let api = api_server();
    let first = api.create(claim("a")).unwrap();
    api.change::<Claim>("default", "a", |claim| claim.spec.volume = "pv".into()).unwrap();
    let error = api.update(Claim::clone(&first)).unwrap_err();
    assert!(error.is_conflict(), "{error}");
    assert!(api.create(claim("a")).unwrap_err().is_conflict());
}

#[test]
fn events_that_say_the_same_are_two() {
    let api = api_server();
    for _ in 0..2 {
        let about =
            Reference { kind: Kind::Pod, namespace: "apps".into(), name: "web".into(), uid: String::new() };
        let event = Notification::about(about, Severity::Warning, "FailedMount", "it failed".into());
        api.create(event).unwrap();
    }
    let stored: Vec<_> = api.list::<Notification>().iter().map(|event| event.meta.clone()).collect();
    assert!(
        stored.iter().all(|meta| meta.namespace == "apps" && meta.name.starts_with("web.")),
        "{stored:?}"
    );
    assert_eq!(stored.len(), 2, "{stored:?}");
}

#[tokio::test]
async fn a_claim_outlives_its_pod_and_not_longer() {
    let api = api_server();
    let _protection = Protection::start(api.seen_by(Client::Controller), TokioClock::shared());
    api.create(claim("a")).unwrap();
    api.create(pod("web", "a")).unwrap();
    api.delete::<Claim>("default", "a").unwrap();
    assert!(api.get::<Claim>("default", "a").unwrap().meta.is_deleting());
    api.delete::<Pod>("default", "web").unwrap();
    api.wait_gone(&Key::namespaced(Kind::Claim, "default", "a")).await;
}

#[test]
fn a_service_gets_an_address_that_no_other_has() {
    let api = api_server();
    let address = |namespace: &str, name: &str, address: &str| {
        let (meta, address) = (Meta::named(namespace, name), address.to_owned());
        api.create(Service { meta, address, ..Service::default() }).unwrap().address.clone()
    };
    assert_eq!(address("default", "a", ""), "10.96.0.2");
    assert_eq!(address("default", "b", "10.96.0.3"), "10.96.0.3");
    assert_eq!(address("default", "c", "None"), "None");
    assert_eq!(address("default", "d", ""), "10.96.0.4");
    assert_eq!(address("other", "kubernetes", ""), "10.96.0.5");
    assert_eq!(address("default", "kubernetes", ""), "10.96.0.1");
}

#[tokio::test]
async fn a_watch_begins_with_what_there_is() {
    let api = api_server();
    api.create(claim("a")).unwrap();
    let mut watch = api.watch(Kind::Claim);
    api.create(claim("b")).unwrap();
    api.delete::<Claim>("default", "a").unwrap();
    let mut seen = Vec::new();
    while let Ok(change) = watch.try_recv() {
        seen.push(match change {
            Change::Applied(object) => format!("applied {}", object.meta().name),
            Change::Deleted(object) => format!("deleted {}", object.meta().name),
            Change::Synced => "synced".to_owned(),
        });
    }
    // The claim is marked, and waits for its protection to be taken away.
    assert_eq!(seen, ["applied a", "synced", "applied b", "applied a"]);
}

#[tokio::test]
async fn a_condition_is_seen_with_a_change_of_any_kind_it_is_about() {
    let api = api_server();
    let both = || Some((api.get::<Claim>("default", "a")?, api.get::<Node>("", "n")?));
    let writes = async {
        api.create(claim("a")).unwrap();
        tokio::task::yield_now().await;
        api.hang_up(Kind::Node);
        tokio::task::yield_now().await;
        api.create(Node { meta: Meta::named("", "n"), ..Node::default() }).unwrap();
    };
    let waits = api.wait_for(&[Kind::Claim, Kind::Node], both);
    let limit = Duration::from_secs(5);
    let (seen, ()) = tokio::join!(tokio::time::timeout(limit, waits), writes);
    assert!(seen.is_ok(), "the last change was of a node");
}

#[tokio::test]
async fn the_other_end_of_a_socket_sees_the_same_objects() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("api.sock");
    let api = api_server();
    let served = api.serve(&socket).unwrap();
    let client = ApiClient::connect(&socket).await.unwrap();

    let mut watch = client.watch(Kind::Claim).await.unwrap();
    assert_eq!(watch.recv().await, Some(Change::Synced));
    let created = client.create(claim("a").into_object()).await.unwrap();
    assert_eq!(watch.recv().await, Some(Change::Applied(created.clone())));
    assert_eq!(client.get(&created.key()).await.unwrap(), created);
    assert_eq!(client.list(Kind::Claim).await.unwrap(), [created]);
    let missing = client.get(&Key::cluster(Kind::Node, "nope")).await.unwrap_err();
    assert!(missing.is_not_found());

    api.disturb(Disturbance {
        kind: Some(Kind::Claim),
        verb: "list".into(),
        unavailable: Some("it is away".into()),
        times: Some(1),
        ..Disturbance::default()
    });
    assert!(client.list(Kind::Claim).await.unwrap_err().is_unavailable());
    assert_eq!(client.list(Kind::Claim).await.unwrap().len(), 1);
    assert_eq!(api.list::<Claim>().len(), 1);

    drop(served);
    assert_eq!(watch.recv().await, None);
    assert!(client.list(Kind::Claim).await.unwrap_err().is_unavailable());
}

#[test]
fn change_about_a_node_is_written_to_its_own_journal_and_any_other_to_all() {
    let first = api_server();
    first.add_node("node-1").unwrap();
    first.create(claim("data")).unwrap();
    let other = Journal::new(Symbols::new(Layout::standard()), None);
    let second = first.recorded_in("node-2", other.clone());
    second.add_node("node-2").unwrap();
    for node in ["node-1", "node-2"] {
        first.create(Pod { node: node.to_owned(), ..pod(node, "data") }).unwrap();
    }
    first.change::<Claim>("default", "data", |claim| claim.spec.volume = "pv".into()).unwrap();
    let changes_of = |journal: &Journal| -> Vec<String> {
        let changes = journal.trace().into_iter().filter_map(|line| match line.event {
            contracts::event::Event::Api(change) => Some(change),
            _ => None,
        });
        changes.map(|change| format!("{} {} {}", change.verb, change.kind, change.object)).collect()
    };
    let claim = "PersistentVolumeClaim default/data";
    let first = changes_of(first.journal());
    assert_eq!(
        first[2..],
        [format!("create {claim}"), "create Pod default/node-1".into(), format!("update {claim}")]
    );
    assert!(first.iter().all(|line| !line.contains("node-2")), "{first:?}");
    let expected = [
        // The objects at the start of the watch.
        format!("create {claim}"),
        "create Node node-2".into(),
        "create CSINode node-2".into(),
        "create Pod default/node-2".into(),
        format!("update {claim}"),
    ];
    assert_eq!(changes_of(&other), expected);
}

#[test]
fn trace_knows_each_kind() {
    for kind in Kind::ALL {
        let word: Result<contracts::event::ObjectKind, _> = kind.as_str().parse();
        assert!(word.is_ok(), "{kind}");
    }
}
