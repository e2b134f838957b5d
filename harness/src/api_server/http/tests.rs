//! The HTTP interface, asked with raw requests as a client of Kubernetes sends them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use api::{Claim, Key, Kind, Meta, Node, Secret};
use contracts::event::{Client, Event, ObjectKind, Verb};
use serde_json::{Value, json};

use super::{HttpApi, protobuf};
use crate::Layout;
use crate::api_server::{ApiServer, Sensitive};
use crate::journal::Journal;
use crate::symbols::Symbols;

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
const MERGE: &str = "application/merge-patch+json";

struct World {
    api: ApiServer,
    http: HttpApi,
}

impl World {
    fn new() -> Self {
        let journal = Journal::new(Symbols::new(Layout::standard()), None);
        let api = ApiServer::new(journal);
        api.add_node("node-1").unwrap();
        let http = HttpApi::serve(&api, "drivers").unwrap();
        Self { api, http }
    }

    fn connect(
        &self,
        method: &str,
        path: &str,
        media: &str,
        body: &[u8],
        token: &str,
    ) -> BufReader<TcpStream> {
        let mut stream = TcpStream::connect(self.http.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n\
             Content-Type: {media}\r\nContent-Length: {length}\r\n\r\n"
        )
        .unwrap();
        stream.write_all(body).unwrap();
        BufReader::new(stream)
    }

    fn ask(&self, method: &str, path: &str, media: &str, body: &Value) -> (u16, Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.send(method, path, media, body.as_bytes())
    }

    fn send(&self, method: &str, path: &str, media: &str, body: &[u8]) -> (u16, Value) {
        let mut answer = String::new();
        self.connect(method, path, media, body, self.http.token()).read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let code = head.split(' ').nth(1).unwrap().parse().unwrap();
        (code, serde_json::from_str(body).unwrap_or_else(|_| Value::String(body.to_owned())))
    }

    #[track_caller]
    fn ok(&self, method: &str, path: &str, body: &Value) -> Value {
        let (code, answer) = self.ask(method, path, "application/json", body);
        assert!(code < 300, "{method} {path}: {code} {answer}");
        answer
    }

    #[track_caller]
    fn refused(&self, method: &str, path: &str, body: &Value) -> (u16, String) {
        let (code, answer) = self.ask(method, path, "application/json", body);
        assert!(code >= 400 && answer["kind"] == "Status", "{method} {path}: {code} {answer}");
        (code, answer["reason"].as_str().unwrap().to_owned())
    }

    /// The lines of a watch, as they come.
    fn watch(&self, path: &str) -> impl Iterator<Item = Value> + use<> {
        let mut stream = self.connect("GET", path, "", b"", self.http.token());
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            stream.read_line(&mut line).unwrap();
        }
        // Chunks: a line with the length, then a line of the watch.
        stream
            .lines()
            .map(Result::unwrap)
            .filter(|line| line.starts_with('{'))
            .map(|line| serde_json::from_str(&line).unwrap())
    }
}

fn lease(name: &str) -> Value {
    json!({ "metadata": { "name": name }, "spec": { "holderIdentity": "a" } })
}

fn type_and_name(line: &Value) -> (&str, &str) {
    (line["type"].as_str().unwrap(), line["object"]["metadata"]["name"].as_str().unwrap_or_default())
}

#[test]
fn object_lives_from_create_to_delete() {
    let world = World::new();
    let made = world.ok("POST", LEASES, &lease("lock"));
    assert_eq!(
        (made["kind"].as_str(), made["apiVersion"].as_str()),
        (Some("Lease"), Some("coordination.k8s.io/v1"))
    );
    assert_eq!(world.refused("POST", LEASES, &lease("lock")), (409, "AlreadyExists".into()));
    let path = format!("{LEASES}/lock");
    let mut next = made.clone();
    next["spec"]["holderIdentity"] = "b".into();
    let second = world.ok("PUT", &path, &next);
    // A client with an older version cannot write the object.
    assert_eq!(world.refused("PUT", &path, &next), (409, "Conflict".into()));
    let (code, patched) =
        world.ask("PATCH", &path, MERGE, &json!({ "metadata": { "labels": { "x": "y" } } }));
    assert_eq!((code, &patched["spec"]["holderIdentity"]), (200, &json!("b")));
    assert_eq!(patched["metadata"]["uid"], second["metadata"]["uid"]);
    let list = world.ok("GET", &format!("{LEASES}?labelSelector=x%3Dy"), &Value::Null);
    assert_eq!((list["items"].as_array().unwrap().len(), &list["kind"]), (1, &json!("LeaseList")));
    assert_eq!(world.ok("DELETE", &path, &Value::Null)["status"], "Success");
    assert_eq!(world.refused("GET", &path, &Value::Null), (404, "NotFound".into()));
}

#[test]
fn write_of_a_client_is_in_the_trace_by_its_name() {
    let world = World::new();
    world.ok("POST", LEASES, &lease("lock"));
    world.ask(
        "PATCH",
        "/api/v1/nodes/node-1",
        MERGE,
        &json!({ "metadata": { "labels": { "topology.x.io/zone": "a" } } }),
    );
    let event = json!({
        "metadata": { "generateName": "e" }, "involvedObject": { "kind": "Node", "name": "node-1" },
        "type": "Warning", "reason": "Full", "message": "no space",
    });
    world.ok("POST", "/api/v1/namespaces/default/events", &event);
    let node: std::sync::Arc<Node> = world.api.get("", "node-1").unwrap();
    assert_eq!(node.meta.labels["topology.x.io/zone"], "a");
    assert!(node.ready, "the rest of it stays as it was");
    let mut lines = Vec::new();
    for line in world.api.journal().trace() {
        match line.event {
            Event::Api(change) if change.by == Client::Driver => {
                lines.push(format!("{} {} {}", change.verb, change.kind, change.object));
            }
            Event::Event(event) if event.by == Client::Driver => {
                lines.push(format!("{} {}", event.obj, event.reason))
            }
            _ => {}
        }
    }
    assert_eq!(lines, ["create Other Lease kube-system/lock", "patch Node node-1", "node/node-1 Full"]);
    assert_eq!((ObjectKind::Other.as_str(), Verb::Patch.as_str()), ("Other", "patch"));
}

#[test]
fn node_and_driver_see_the_same_claims_and_secrets() {
    let world = World::new();
    let claim = json!({
        "metadata": { "name": "data", "finalizers": ["x.io/held"] },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } }, "unknown": 1 },
    });
    let path = "/api/v1/namespaces/default/persistentvolumeclaims";
    world.ok("POST", path, &claim);
    let seen: std::sync::Arc<Claim> = world.api.get("default", "data").unwrap();
    assert_eq!(seen.spec.request.to_string(), "1Gi");
    world.api.change::<Claim>("default", "data", |claim| claim.spec.volume = "pv-data".into()).unwrap();
    let read = world.ok("GET", &format!("{path}/data"), &Value::Null);
    assert_eq!(
        (&read["spec"]["volumeName"], &read["status"]["phase"]),
        (&json!("pv-data"), &json!("Pending"))
    );
    let wrong =
        json!({ "metadata": { "name": "odd" }, "spec": { "resources": { "requests": { "storage": "x" } } } });
    assert_eq!(world.refused("POST", path, &wrong), (422, "Invalid".into()));
    let data = [("key".to_owned(), Sensitive::new(b"a very secret".to_vec()))].into();
    world.api.create(Secret { meta: Meta::named("default", "s"), data }).unwrap();
    let secret = world.ok("GET", "/api/v1/namespaces/default/secrets/s", &Value::Null);
    assert_eq!(secret["data"]["key"], "YSB2ZXJ5IHNlY3JldA==");
    // A finalizer holds the claim until a client takes it back.
    assert!(
        world.ok("DELETE", &format!("{path}/data"), &Value::Null)["metadata"]["deletionTimestamp"]
            .is_string()
    );
    assert!(world.api.store().get(&Key::namespaced(Kind::Claim, "default", "data")).is_ok());
    world.ask("PATCH", &format!("{path}/data"), MERGE, &json!({ "metadata": { "finalizers": [] } }));
    assert_eq!(world.refused("GET", &format!("{path}/data"), &Value::Null).0, 404);
}

#[test]
fn watch_sends_the_objects_and_then_each_change() {
    let world = World::new();
    world.ok("POST", LEASES, &lease("one"));
    let mut lines = world.watch("/apis/coordination.k8s.io/v1/leases?watch=true&sendInitialEvents=true");
    let first = lines.next().unwrap();
    assert_eq!(type_and_name(&first), ("ADDED", "one"));
    let mark = lines.next().unwrap();
    assert_eq!(mark["type"], "BOOKMARK");
    assert_eq!(mark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    world.ok("POST", LEASES, &lease("two"));
    assert_eq!(type_and_name(&lines.next().unwrap()), ("ADDED", "two"));
    world.ask("PATCH", &format!("{LEASES}/one"), MERGE, &json!({ "spec": { "holderIdentity": "c" } }));
    let changed = lines.next().unwrap();
    assert_eq!(type_and_name(&changed), ("MODIFIED", "one"));
    world.ok("DELETE", &format!("{LEASES}/one"), &Value::Null);
    assert_eq!(type_and_name(&lines.next().unwrap()), ("DELETED", "one"));
    // From a version on: the same changes again, for a client that was away.
    let since = changed["object"]["metadata"]["resourceVersion"].as_str().unwrap();
    let mut lines = world.watch(&format!("{LEASES}?watch=1&resourceVersion={since}"));
    assert_eq!(type_and_name(&lines.next().unwrap()), ("DELETED", "one"));
    let past = world.refused("GET", &format!("{LEASES}?watch=1&resourceVersion=999999"), &Value::Null);
    assert_eq!(past, (410, "Expired".into()));
}

#[test]
fn watch_with_a_selector_sends_the_deletion_of_an_object_that_leaves_it() {
    let world = World::new();
    let mut lines = world.watch("/api/v1/nodes?watch=true&labelSelector=zone");
    let label = |value: Value| json!({ "metadata": { "labels": { "zone": value } } });
    world.ask("PATCH", "/api/v1/nodes/node-1", MERGE, &label("a".into()));
    assert_eq!(type_and_name(&lines.next().unwrap()), ("ADDED", "node-1"));
    world.ask("PATCH", "/api/v1/nodes/node-1", MERGE, &label(Value::Null));
    assert_eq!(type_and_name(&lines.next().unwrap()), ("DELETED", "node-1"));
}

fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "things.x.io" },
        "spec": {
            "group": "x.io", "scope": "Namespaced", "names": { "plural": "things", "kind": "Thing" },
            "versions": [
                { "name": "v1", "served": true, "storage": true, "subresources": { "status": {} } },
                { "name": "v2", "served": true, "storage": false, "subresources": { "status": {} } },
            ],
        },
    })
}

#[test]
fn custom_resource_is_served_in_each_of_its_versions() {
    let world = World::new();
    let path = "/apis/x.io/v1/namespaces/drivers/things";
    assert_eq!(world.refused("POST", path, &json!({ "metadata": { "name": "a" } })).0, 404);
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let made = world.ok("POST", definitions, &definition());
    assert_eq!(made["status"]["conditions"][1]["type"], "Established");
    let thing = json!({ "metadata": { "name": "a" }, "spec": { "n": 1 }, "status": { "ignored": true } });
    assert_eq!(world.ok("POST", path, &thing)["status"], Value::Null, "the status has a path of its own");
    let (code, said) = world.ask(
        "PATCH",
        &format!("{path}/a/status"),
        MERGE,
        &json!({ "status": { "ok": true }, "spec": { "n": 2 } }),
    );
    assert_eq!((code, &said["status"]["ok"], &said["spec"]["n"]), (200, &json!(true), &json!(1)));
    let other = world.ok("GET", "/apis/x.io/v2/things", &Value::Null);
    assert_eq!((&other["apiVersion"], &other["items"][0]["spec"]["n"]), (&json!("x.io/v2"), &json!(1)));
    let found = world.ok("GET", "/apis/x.io/v1", &Value::Null);
    assert_eq!(found["resources"][1]["name"], "things/status");
    world.ok("DELETE", &format!("{definitions}/things.x.io"), &Value::Null);
    assert_eq!(world.refused("GET", path, &Value::Null).0, 404);
}

#[test]
fn client_without_the_token_is_not_served() {
    let world = World::new();
    for (token, code) in [("wrong", "401"), (world.http.token(), "200")] {
        let mut answer = String::new();
        world.connect("GET", "/api/v1/nodes", "", b"", token).read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {code} ")), "{answer}");
    }
    assert_eq!(world.ok("GET", "/version", &Value::Null)["major"], "1");
    // As clients of client-go do, which send no token without TLS.
    let config: Value = serde_json::from_str(&world.http.kubeconfig()).unwrap();
    let server = config["clusters"][0]["cluster"]["server"].as_str().unwrap();
    let path =
        format!("{}/api/v1/nodes", server.trim_start_matches(&format!("http://{}", world.http.address())));
    let mut answer = String::new();
    world.connect("GET", &path, "", b"", "").read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("node-1"), "{answer}");
}

/// Asks as a client in a pod does, and says which protocol was agreed upon.
fn ask_by_tls(world: &World, authority: &str, protocols: &[&[u8]]) -> std::io::Result<(Vec<u8>, String)> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio_rustls::rustls::pki_types::pem::PemObject;
    use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
    use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring};

    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.as_bytes()).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(ring::default_provider().into());
    let config = config.with_safe_default_protocol_versions().unwrap();
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(world.http.address()).await?;
        let connector = tokio_rustls::TlsConnector::from(std::sync::Arc::new(config));
        let mut stream = connector.connect(ServerName::from(world.http.address().ip()), stream).await?;
        let agreed = stream.get_ref().1.alpn_protocol().unwrap_or_default().to_vec();
        if agreed == b"h2" {
            return Ok((agreed, String::new()));
        }
        let token = world.http.token();
        let request =
            format!("GET /api/v1/nodes HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        // A server that closes without a word has said everything.
        let _ = stream.read_to_end(&mut answer).await;
        Ok((agreed, String::from_utf8_lossy(&answer).into_owned()))
    })
}

#[test]
fn client_in_a_pod_finds_https_by_the_files_of_its_account() {
    let world = World::new();
    let [(_, authority), (_, namespace), (_, token)] = world.http.service_account();
    assert_eq!((namespace, token), ("drivers", world.http.token()));
    let (_, answer) = ask_by_tls(&world, authority, &[]).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("node-1"), "{answer}");
    // As client-go does.
    let (agreed, _) = ask_by_tls(&world, authority, &[b"h2", b"http/1.1"]).unwrap();
    assert_eq!(agreed, b"h2");
    let other = World::new();
    let [(_, authority), ..] = other.http.service_account();
    assert!(
        ask_by_tls(&world, authority, &[]).is_err(),
        "another cluster's authority vouches for nothing here"
    );
    let [(_, host), (_, port), _] = world.http.service_variables();
    assert_eq!(format!("{host}:{port}"), world.http.address().to_string());
}

#[test]
fn token_of_an_account_is_one_that_can_be_reviewed() {
    let world = World::new();
    let path = "/api/v1/namespaces/drivers/serviceaccounts/sa/token";
    let made = world.ok("POST", path, &json!({ "spec": { "audiences": ["x"], "expirationSeconds": 600 } }));
    let token = made["status"]["token"].as_str().unwrap();
    let review = "/apis/authentication.k8s.io/v1/tokenreviews";
    let said = world.ok("POST", review, &json!({ "spec": { "token": token } }));
    assert_eq!(said["status"]["user"]["username"], "system:serviceaccount:drivers:sa");
    let said = world.ok("POST", review, &json!({ "spec": { "token": "guessed" } }));
    assert_eq!(said["status"]["authenticated"], false);
}

#[test]
fn bad_requests_are_answered_with_a_status() {
    let world = World::new();
    for (method, path, body, code) in [
        ("GET", "/apis/none/v1/things", Value::Null, 404),
        ("GET", "/api/v1/namespaces/none/pods/x", Value::Null, 404),
        ("POST", "/api/v1/configmaps", json!({ "metadata": { "name": "a" } }), 400),
        ("POST", "/api/v1/namespaces/none/configmaps", json!({ "metadata": { "name": "a" } }), 404),
        ("POST", "/api/v1/namespaces/default/configmaps", json!({ "metadata": { "name": "A_b" } }), 422),
        (
            "POST",
            "/api/v1/namespaces/default/configmaps",
            json!({ "kind": "Secret", "metadata": { "name": "a" } }),
            400,
        ),
        ("POST", "/api/v1/namespaces/default/configmaps", json!([1]), 400),
        ("POST", "/api/v1/nodes", json!({ "metadata": { "name": "node-9" } }), 403),
        ("PUT", "/api/v1/nodes", Value::Null, 405),
        ("GET", "/api/v1/nodes?labelSelector=a%20b", Value::Null, 400),
    ] {
        assert_eq!(world.refused(method, path, &body).0, code, "{method} {path}");
    }
    assert_eq!(world.ask("POST", LEASES, protobuf::MEDIA_TYPE, &lease("x")).0, 400);
    assert_eq!(world.ask("POST", LEASES, "application/cbor", &lease("x")).0, 415);
    let large = json!({ "metadata": { "name": "a" }, "data": { "x": "x".repeat(2 << 20) } });
    assert_eq!(world.ask("POST", "/api/v1/namespaces/default/configmaps", "application/json", &large).0, 413);
}

#[test]
fn protobuf_of_a_real_client_is_written_like_json() {
    let world = World::new();
    for (method, path, body) in protobuf::tests::recorded() {
        let (code, answer) = world.send(method, path, protobuf::MEDIA_TYPE, &body);
        // Only the cluster itself attaches.
        let expected = if path.ends_with("volumeattachments") { 403 } else { 201 };
        let expected = if method == "DELETE" { 409 } else { expected };
        assert_eq!(code, expected, "{method} {path} {answer}");
    }
    let claim: std::sync::Arc<Claim> = world.api.get("default", "a").unwrap();
    assert_eq!((claim.spec.request.to_string(), claim.spec.class.as_deref()), ("1Gi".into(), Some("")));
    assert_eq!(claim.spec.mode, api::VolumeMode::Block);
    let secret: std::sync::Arc<Secret> = world.api.get("default", "s").unwrap();
    assert_eq!(secret.data["key"].reveal(), b"a very secret");
    let lease = world.ok("GET", &format!("{LEASES}/lock"), &Value::Null);
    assert_eq!(lease["spec"]["renewTime"], "2026-01-02T03:04:05.678901Z");
    assert_eq!(lease["spec"]["leaseTransitions"], 0);
    let pod = world.ok("GET", "/api/v1/namespaces/default/pods/helper", &Value::Null);
    assert_eq!(pod["status"]["phase"], "Pending", "a client that waits for its end reads it");
    assert_eq!(world.api.store().new_token("web", "default:web".into(), None).token.reveal(), "token-web-2");
}

#[test]
fn manifests_are_made_before_the_driver_starts() {
    let world = World::new();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("objects.yaml");
    let documents =
        format!("{}\n---\napiVersion: x.io/v1\nkind: Thing\nmetadata:\n  name: a\n---\n", definition());
    std::fs::write(&path, documents).unwrap();
    world.http.add_objects(&path).unwrap();
    assert_eq!(world.ok("GET", "/apis/x.io/v1/namespaces/drivers/things/a", &Value::Null)["kind"], "Thing");
    std::fs::write(&path, "apiVersion: y.io/v1\nkind: Other\nmetadata: {name: a}\n").unwrap();
    let error = world.http.add_objects(&path).unwrap_err();
    assert!(error.to_string().ends_with("there is no \"Other\" of \"y.io/v1\""), "{error}");
}
