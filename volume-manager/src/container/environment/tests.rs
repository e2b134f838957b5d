//! The sources of variables, and the errors of missing sources.

use api::environment::{Import, Variable};
use api::{Meta, Resource, Sensitive};

use super::*;
use testing::MemoryApi;

fn variable_from(name: &str, origin: Origin) -> Variable {
    Variable { name: name.into(), origin }
}

fn holder(kind: HolderKind, name: &str, optional: bool) -> Holder {
    Holder { kind, name: name.into(), optional }
}

/// A node, a config map `cm` and a secret `keys`.
fn api() -> MemoryApi {
    let api = MemoryApi::default();
    let mut node = Node { meta: Meta::named("", "node-1"), ..Node::default() };
    node.allocatable.cpu = 3500;
    api.put(node.into_object());
    let data = [("color", "blue"), ("size", "9")].map(|(key, text)| (key.into(), text.into())).into();
    let binary = [("bin".into(), b"bytes".to_vec())].into();
    api.put(ConfigMap { meta: Meta::named("ns", "cm"), data, binary }.into_object());
    let data = [("password", b"x".to_vec()), ("raw", vec![0xff])];
    let data = data.map(|(key, value)| (key.into(), Sensitive::new(value))).into();
    api.put(Secret { meta: Meta::named("ns", "keys"), data }.into_object());
    api
}

fn pod() -> Pod {
    let mut pod = Pod { meta: Meta::named("ns", "web"), ..Pod::default() };
    (pod.meta.uid, pod.node, pod.service_account) = ("u1".into(), "node-1".into(), "robot".into());
    pod.meta.labels.insert("app".into(), "shop".into());
    (pod.ips, pod.host_ips) = (vec!["10.0.0.7".into(), "fd00::7".into()], vec!["192.0.2.1".into()]);
    let container = |name: &str, limit: &str| Container {
        name: name.into(),
        resources: [("limits.memory".into(), limit.into())].into(),
        ..Container::default()
    };
    pod.containers = vec![container("main", "64Mi"), container("side", "32Mi")];
    pod
}

async fn lines(imports: Vec<Import>, environment: Vec<Variable>) -> Result<Vec<String>, String> {
    lines_with_services(&[], imports, environment).await
}

/// The environment of a container as lines `NAME=value`, or the error, with these variables of services.
async fn lines_with_services(
    services: &[(&str, &str)],
    imports: Vec<Import>,
    environment: Vec<Variable>,
) -> Result<Vec<String>, String> {
    let pod = pod();
    let container = Container { imports, environment, ..pod.containers[0].clone() };
    let services = services.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    let found = super::of(&api(), &pod, &container, services).await.map_err(|error| error.to_string())?;
    Ok(found.into_iter().map(|(name, value)| format!("{name}={}", value.reveal())).collect())
}

/// The environment of a container whose only variable is `V`.
async fn variable(origin: Origin) -> Result<Vec<String>, String> {
    lines(Vec::new(), vec![variable_from("V", origin)]).await
}

#[tokio::test]
async fn fields_of_the_pod_become_values() {
    for (path, value) in [
        ("metadata.name", "web"),
        ("metadata.namespace", "ns"),
        ("metadata.uid", "u1"),
        ("metadata.labels['app']", "shop"),
        ("metadata.annotations['nope']", ""),
        ("spec.nodeName", "node-1"),
        ("spec.serviceAccountName", "robot"),
        ("status.podIP", "10.0.0.7"),
        ("status.podIPs", "10.0.0.7,fd00::7"),
        ("status.hostIP", "192.0.2.1"),
        ("status.hostIPs", "192.0.2.1"),
    ] {
        assert_eq!(variable(Origin::Field(path.into())).await, Ok(vec![format!("V={value}")]), "{path}");
    }
    let refused = variable(Origin::Field("spec.color".into())).await.unwrap_err();
    assert_eq!(refused, "no value for variable \"V\": unsupported fieldPath: spec.color");
}

#[tokio::test]
async fn amount_is_of_the_named_container_or_its_own() {
    for (container, resource, divisor, value) in [
        ("", "limits.memory", "1Mi", "64"),
        ("main", "limits.memory", "", "67108864"),
        ("side", "limits.memory", "1Mi", "32"),
        ("", "limits.cpu", "1m", "3500"),
        ("", "requests.cpu", "", "0"),
    ] {
        let origin = Origin::Amount {
            container: container.into(),
            resource: resource.into(),
            divisor: divisor.into(),
        };
        assert_eq!(variable(origin).await, Ok(vec![format!("V={value}")]), "{resource} of {container:?}");
    }
    for (container, resource) in [("nope", "limits.cpu"), ("main", "limits.gpu")] {
        let origin =
            Origin::Amount { container: container.into(), resource: resource.into(), divisor: String::new() };
        let unknown = format!("the amount of resource {resource} of container {container} is not known");
        assert_eq!(variable(origin).await, Err(format!("no value for variable \"V\": {unknown}")));
    }
}

#[tokio::test]
async fn missing_key_is_an_error_unless_optional() {
    use HolderKind::{ConfigMap, Secret};
    for (kind, name, key, value_or_error) in [
        (ConfigMap, "cm", "color", Ok("V=blue")),
        (Secret, "keys", "password", Ok("V=x")),
        (ConfigMap, "cm", "bin", Err("couldn't find key bin in ConfigMap ns/cm")),
        (Secret, "keys", "nope", Err("couldn't find key nope in Secret ns/keys")),
        (ConfigMap, "nope", "k", Err("configmaps \"nope\" not found")),
        (Secret, "cm", "k", Err("secrets \"cm\" not found")),
    ] {
        let value = |optional| variable(Origin::Key(holder(kind, name, optional), key.into()));
        let expected = value_or_error.map(|value| vec![value.to_owned()]);
        let strict = expected.clone().map_err(|why| format!("no value for variable \"V\": {why}"));
        assert_eq!(value(false).await, strict, "{kind:?} {name} {key}");
        assert_eq!(value(true).await, Ok(expected.unwrap_or_default()), "optional {kind:?} {name} {key}");
    }
    for optional in [false, true] {
        let raw = Origin::Key(holder(Secret, "keys", optional), "raw".into());
        assert_eq!(variable(raw).await.unwrap_err(), "no value for variable \"V\": the value is not UTF-8");
    }
}

#[tokio::test]
async fn text_expands_variables_defined_before_it() {
    let name = || variable_from("NAME", Origin::Field("metadata.name".into()));
    let path = || Variable::text("PATH", "$(NAME)/$(color)/$$(NAME)");
    let cm = || vec![Import { holder: holder(HolderKind::ConfigMap, "cm", false), prefix: String::new() }];
    let found = lines(cm(), vec![name(), path()]).await.unwrap();
    assert_eq!(found, ["NAME=web", "PATH=web/blue/$(NAME)", "color=blue", "size=9"]);
    let found = lines(Vec::new(), vec![path(), name()]).await.unwrap();
    assert_eq!(found, ["NAME=web", "PATH=$(NAME)/$(color)/$(NAME)"]);
}

#[tokio::test]
async fn own_variables_override_imported_ones() {
    let import = |kind, name: &str, optional, prefix: &str| Import {
        holder: holder(kind, name, optional),
        prefix: prefix.into(),
    };
    let cm = |prefix| import(HolderKind::ConfigMap, "cm", false, prefix);
    let own = || vec![Variable::text("color", "red")];
    assert_eq!(lines(vec![cm("")], own()).await.unwrap(), ["color=red", "size=9"]);
    assert_eq!(lines(vec![cm("CM_")], own()).await.unwrap(), ["CM_color=blue", "CM_size=9", "color=red"]);
    let nope = |optional| import(HolderKind::Secret, "nope", optional, "");
    assert_eq!(lines(vec![nope(true)], own()).await.unwrap(), ["color=red"]);
    let refused = lines(vec![nope(false)], own()).await.unwrap_err();
    assert_eq!(refused, "cannot read the environment: secrets \"nope\" not found");
    let raw = import(HolderKind::Secret, "keys", false, "K_");
    let refused = lines(vec![raw], own()).await.unwrap_err();
    assert_eq!(refused, "no value for variable \"K_raw\": the value is not UTF-8");
}

#[tokio::test]
async fn service_variables_are_overridden_by_all_others() {
    let services = &[("WEB_SERVICE_HOST", "10.0.0.1"), ("WEB_SERVICE_PORT", "80"), ("color", "service")];
    let cm = vec![Import { holder: holder(HolderKind::ConfigMap, "cm", false), prefix: String::new() }];
    let own = vec![
        Variable::text("URL", "http://$(WEB_SERVICE_HOST):$(WEB_SERVICE_PORT)/$(color)"),
        Variable::text("WEB_SERVICE_HOST", "not-$(WEB_SERVICE_HOST)"),
        Variable::text("AFTER", "$(WEB_SERVICE_HOST)"),
        variable_from(
            "WEB_SERVICE_PORT",
            Origin::Key(holder(HolderKind::ConfigMap, "cm", true), "nope".into()),
        ),
    ];
    let found = lines_with_services(services, cm, own).await.unwrap();
    let expected = [
        "AFTER=not-10.0.0.1",
        "URL=http://10.0.0.1:80/blue",
        "WEB_SERVICE_HOST=not-10.0.0.1",
        // A missing optional source does not replace the other value.
        "WEB_SERVICE_PORT=80",
        "color=blue",
        "size=9",
    ];
    assert_eq!(found, expected);
}

#[tokio::test]
async fn unsupported_variable_source_is_refused() {
    let refused = variable(Origin::Other("fileKeyRef".into())).await.unwrap_err();
    assert!(
        refused.starts_with("no value for variable \"V\": values from fileKeyRef are not supported"),
        "{refused}"
    );
}
