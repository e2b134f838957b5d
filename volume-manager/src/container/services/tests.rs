//! The services in a container's environment, their variables, and how long a known service is kept.

use std::time::Duration;

use api::clock::TokioClock;
use api::{ApiError, Change, Key, Meta, Object, Patch, ServicePort, Token, TokenRequest, Watch};
use async_trait::async_trait;
use expect_test::{Expect, expect};
use tokio::sync::{Mutex, mpsc};

use super::*;

fn service(namespace: &str, name: &str, address: &str, ports: &[(&str, i32, &str)]) -> Service {
    let port = |(name, number, protocol): &(&str, i32, &str)| ServicePort {
        name: (*name).into(),
        number: *number,
        protocol: (*protocol).into(),
    };
    let (meta, address) = (Meta::named(namespace, name), address.into());
    Service { meta, address, ports: ports.iter().map(port).collect() }
}

fn check(services: &Services, namespace: &str, alone: bool, expected: &Expect) {
    let variables = services.variables(namespace, alone).expect("they were read");
    let lines = variables.iter().map(|(name, value)| format!("{name}={value}\n"));
    expected.assert_eq(&lines.collect::<String>());
}

/// The names of services with their addresses.
fn hosts(services: &Services, namespace: &str, alone: bool) -> Vec<String> {
    let variables = services.variables(namespace, alone).expect("they were read");
    let hosts = variables.iter().filter_map(|(name, at)| Some((name.strip_suffix("_SERVICE_HOST")?, at)));
    hosts.map(|(name, at)| format!("{name} {at}")).collect()
}

#[test]
fn service_has_variables_in_both_forms() {
    let ports = [("", 6379, "TCP"), ("bus-6", 16379, ""), ("log", 514, "UDP")];
    let services = Services::fixed([service("ns", "redis-primary", "10.0.0.11", &ports)]);
    check(
        &services,
        "ns",
        false,
        &expect![[r#"
            REDIS_PRIMARY_PORT=tcp://10.0.0.11:6379
            REDIS_PRIMARY_PORT_16379_TCP=tcp://10.0.0.11:16379
            REDIS_PRIMARY_PORT_16379_TCP_ADDR=10.0.0.11
            REDIS_PRIMARY_PORT_16379_TCP_PORT=16379
            REDIS_PRIMARY_PORT_16379_TCP_PROTO=tcp
            REDIS_PRIMARY_PORT_514_UDP=udp://10.0.0.11:514
            REDIS_PRIMARY_PORT_514_UDP_ADDR=10.0.0.11
            REDIS_PRIMARY_PORT_514_UDP_PORT=514
            REDIS_PRIMARY_PORT_514_UDP_PROTO=udp
            REDIS_PRIMARY_PORT_6379_TCP=tcp://10.0.0.11:6379
            REDIS_PRIMARY_PORT_6379_TCP_ADDR=10.0.0.11
            REDIS_PRIMARY_PORT_6379_TCP_PORT=6379
            REDIS_PRIMARY_PORT_6379_TCP_PROTO=tcp
            REDIS_PRIMARY_SERVICE_HOST=10.0.0.11
            REDIS_PRIMARY_SERVICE_PORT=6379
            REDIS_PRIMARY_SERVICE_PORT_BUS_6=16379
            REDIS_PRIMARY_SERVICE_PORT_LOG=514
        "#]],
    );
}

#[test]
fn an_address_with_colons_is_in_brackets_before_a_port() {
    let services = Services::fixed([service("ns", "six", "fd00::1", &[("", 80, "TCP")])]);
    check(
        &services,
        "ns",
        false,
        &expect![[r#"
            SIX_PORT=tcp://[fd00::1]:80
            SIX_PORT_80_TCP=tcp://[fd00::1]:80
            SIX_PORT_80_TCP_ADDR=fd00::1
            SIX_PORT_80_TCP_PORT=80
            SIX_PORT_80_TCP_PROTO=tcp
            SIX_SERVICE_HOST=fd00::1
            SIX_SERVICE_PORT=80
        "#]],
    );
}

#[test]
fn services_of_the_namespace_and_the_api_have_variables() {
    let services = Services::fixed([
        service("default", "kubernetes", "10.0.0.1", &[]),
        service("default", "web", "10.0.0.2", &[]),
        service("ns", "db", "10.0.0.3", &[]),
        service("ns", "headless", "None", &[]),
        service("ns", "new", "", &[]),
        service("other", "kubernetes", "10.0.0.4", &[]),
    ]);
    assert_eq!(hosts(&services, "ns", false), ["DB 10.0.0.3", "KUBERNETES 10.0.0.1"]);
    assert_eq!(hosts(&services, "ns", true), ["KUBERNETES 10.0.0.1"]);
    assert_eq!(hosts(&services, "default", false), ["KUBERNETES 10.0.0.1", "WEB 10.0.0.2"]);
    assert_eq!(hosts(&services, "default", true), ["KUBERNETES 10.0.0.1"]);
    // A service of the pod's namespace replaces one of the same name, unless service links are off.
    assert_eq!(hosts(&services, "other", false), ["KUBERNETES 10.0.0.4"]);
    assert_eq!(hosts(&services, "other", true), ["KUBERNETES 10.0.0.1"]);
}

/// An API whose streams are made by the test.
#[derive(Debug)]
struct Streams(Mutex<mpsc::UnboundedReceiver<Result<Watch, ApiError>>>);

#[async_trait]
impl ApiSource for Streams {
    async fn watch(&self, kind: Kind) -> Result<Watch, ApiError> {
        assert_eq!(kind, Kind::Service);
        self.0.lock().await.recv().await.expect("the test has prepared a stream")
    }
    async fn get(&self, _: &Key) -> Result<Object, ApiError> {
        unreachable!("services are watched")
    }
    async fn list(&self, _: Kind) -> Result<Vec<Object>, ApiError> {
        unreachable!("services are watched")
    }
    async fn create(&self, _: Object) -> Result<Object, ApiError> {
        unreachable!("services are watched")
    }
    async fn update(&self, _: Object) -> Result<Object, ApiError> {
        unreachable!("services are watched")
    }
    async fn patch(&self, _: Patch) -> Result<Object, ApiError> {
        unreachable!("services are watched")
    }
    async fn delete(&self, _: &Key) -> Result<(), ApiError> {
        unreachable!("services are watched")
    }
    async fn request_token(&self, _: &TokenRequest) -> Result<Token, ApiError> {
        unreachable!("services are watched")
    }
}

/// Lets the follower handle everything it has received: time passes only when it waits.
async fn settle() {
    TokioClock::shared().sleep(Duration::from_millis(1)).await;
}

#[tokio::test(start_paused = true)]
async fn services_are_kept_until_a_newer_list() {
    let (prepare, streams) = mpsc::unbounded_channel();
    let services = Services::follow(Arc::new(Streams(Mutex::new(streams))), TokioClock::shared());
    let applied = |name, at| Change::Applied(service("ns", name, at, &[]).into_object());
    let stream = || {
        let (sender, watch) = mpsc::unbounded_channel();
        prepare.send(Ok(watch)).unwrap();
        sender
    };
    let first = stream();
    first.send(applied("a", "10.0.0.1")).unwrap();
    first.send(applied("b", "10.0.0.2")).unwrap();
    settle().await;
    assert_eq!(services.variables("ns", false), None);
    first.send(Change::Synced).unwrap();
    services.read().await;
    assert_eq!(hosts(&services, "ns", false), ["A 10.0.0.1", "B 10.0.0.2"]);
    first.send(Change::Deleted(service("ns", "b", "", &[]).into_object())).unwrap();
    first.send(applied("c", "10.0.0.3")).unwrap();
    settle().await;
    assert_eq!(hosts(&services, "ns", false), ["A 10.0.0.1", "C 10.0.0.3"]);

    // The watch ends and fails for a while; meanwhile `a` is deleted and `c` gets another address.
    prepare.send(Err(ApiError::Unavailable { reason: "it is away".into() })).unwrap();
    drop(first);
    TokioClock::shared().sleep(Duration::from_secs(3)).await;
    let second = stream();
    second.send(applied("c", "10.0.0.4")).unwrap();
    settle().await;
    assert_eq!(hosts(&services, "ns", false), ["A 10.0.0.1", "C 10.0.0.4"]);
    second.send(Change::Synced).unwrap();
    settle().await;
    assert_eq!(hosts(&services, "ns", false), ["C 10.0.0.4"]);

    drop(services);
    second.closed().await;
}
