//! Fields of the pod and its resource amounts as files, in memory only. Reads the pod and the node's object;
//! [`super::content`] writes the files.

use std::collections::BTreeMap;

use api::names::{ContainerName, SpecName};
use api::pod::DownwardItem;
use api::quantity::thousandths;
use api::{Allocatable, Container, Pod, Sensitive, VolumeSource};
use async_trait::async_trait;
use plugin_api::{OperationContext, SetUp};

use super::atomic_writer::{File, Payload};
use super::content::{ContentError, Source};

#[derive(Debug, Default)]
pub(super) struct DownwardApiSource;

#[async_trait]
impl Source for DownwardApiSource {
    const NAME: &'static str = "kubernetes.io/downward-api";
    const IN_MEMORY: bool = true;

    fn takes(source: &VolumeSource) -> bool {
        matches!(source, VolumeSource::DownwardApi { .. })
    }

    fn object(_source: &VolumeSource) -> Option<&str> {
        None
    }

    async fn payload(
        cx: &OperationContext,
        source: &VolumeSource,
        request: &SetUp,
    ) -> Result<Payload, ContentError> {
        let VolumeSource::DownwardApi { items, default_mode } = source else {
            return Err(ContentError::WrongSource(request.spec.name()));
        };
        files(cx, items, &request.pod, *default_mode)
    }

    fn found(_inner: &SpecName) -> VolumeSource {
        VolumeSource::DownwardApi { items: Vec::new(), default_mode: 0 }
    }
}

/// The files, or all errors.
pub(super) fn files(
    cx: &OperationContext,
    items: &[DownwardItem],
    pod: &Pod,
    default_mode: u32,
) -> Result<Payload, ContentError> {
    let node = cx.facts().node.as_ref().map(|node| node.allocatable.clone()).unwrap_or_default();
    let mut payload = Payload::new();
    let mut errors = Vec::new();
    for item in items {
        let text = match item.field.as_str() {
            "" => resource(pod, item, &node),
            path => field(pod, path).ok_or_else(|| ContentError::NoField(path.to_owned())),
        };
        match text {
            Ok(text) => {
                let content = Sensitive::new(text.into_bytes());
                let mode = item.mode.unwrap_or(default_mode);
                payload.insert(item.path.clone(), File { content, mode, owner: None });
            }
            Err(error) => errors.push(error),
        }
    }
    match ContentError::all(errors) {
        None => Ok(payload),
        Some(error) => Err(error),
    }
}

/// A field of the pod's metadata; `None` if there is no such field.
pub(crate) fn field(pod: &Pod, path: &str) -> Option<String> {
    let meta = &pod.meta;
    match path {
        "metadata.name" => Some(meta.name.clone()),
        "metadata.namespace" => Some(meta.namespace.clone()),
        "metadata.uid" => Some(meta.uid.clone()),
        "metadata.labels" => Some(lines(&meta.labels)),
        "metadata.annotations" => Some(lines(&meta.annotations)),
        _ => {
            let (map, key) = path.strip_suffix("']")?.split_once("['")?;
            let values = match map {
                "metadata.labels" => &meta.labels,
                "metadata.annotations" => &meta.annotations,
                _ => return None,
            };
            Some(values.get(key).cloned().unwrap_or_default())
        }
    }
}

/// One line of `key="value"` for each entry.
fn lines(values: &BTreeMap<String, String>) -> String {
    let lines: Vec<String> = values.iter().map(|(key, value)| format!("{key}={}", quoted(value))).collect();
    lines.join("\n")
}

/// Quotes as Go's `%q` does.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            '\r' => quoted.push_str("\\r"),
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{b}' => quoted.push_str("\\v"),
            '\u{c}' => quoted.push_str("\\f"),
            letter if u32::from(letter) < 0x20 || letter == '\u{7f}' => {
                quoted.push_str(&format!("\\x{:02x}", u32::from(letter)));
            }
            letter => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}

fn resource(pod: &Pod, item: &DownwardItem, node: &Allocatable) -> Result<String, ContentError> {
    let container = pod.container(&ContainerName::new(&item.container));
    let amount = container.and_then(|container| amount(container, &item.resource, &item.divisor, node));
    let unknown = || ContentError::NoResource(format!("{} of container {}", item.resource, item.container));
    amount.ok_or_else(unknown)
}

/// An amount, divided and rounded up. Without a limit, the node's allocatable amount is the container's limit, except for
/// huge pages, which cannot be overcommitted. `None` for an unknown resource.
pub(crate) fn amount(
    container: &Container,
    resource: &str,
    divisor: &str,
    node: &Allocatable,
) -> Option<String> {
    let (kind, name) = resource.split_once('.')?;
    let nodes = match name {
        "cpu" => u128::from(node.cpu),
        "memory" => u128::from(node.memory.0) * 1000,
        "ephemeral-storage" => u128::from(node.ephemeral_storage.0) * 1000,
        _ if name.starts_with("hugepages-") => 0,
        _ => return None,
    };
    let written = match container.resources.get(resource) {
        Some(text) => thousandths(text)?,
        None => 0,
    };
    let amount = match (written, kind) {
        (0, "limits") if nodes > 0 || name.starts_with("hugepages-") => nodes,
        (0, "limits") => return None,
        (amount, "limits" | "requests") => amount,
        _ => return None,
    };
    let divisor = match divisor {
        "" | "0" => 1000,
        text => thousandths(text).filter(|divisor| *divisor > 0)?,
    };
    Some(amount.div_ceil(divisor).to_string())
}

#[cfg(test)]
mod tests {
    use api::{Bytes, Meta};

    use super::*;

    fn pod() -> Pod {
        let mut pod = Pod { meta: Meta::named("ns", "web"), ..Pod::default() };
        pod.meta.labels = BTreeMap::from([("b".into(), "2".into()), ("a".into(), "say \"hi\"\n".into())]);
        let resources = [("limits.cpu", "1500m"), ("limits.memory", "64Mi"), ("requests.cpu", "0.25")];
        let resources = resources.map(|(name, amount)| (name.to_owned(), amount.to_owned()));
        pod.containers =
            vec![Container { name: "c".into(), resources: resources.into(), ..Container::default() }];
        pod
    }

    #[test]
    fn fields_are_as_the_kubelet_writes_them() {
        let pod = pod();
        assert_eq!(field(&pod, "metadata.labels").unwrap(), "a=\"say \\\"hi\\\"\\n\"\nb=\"2\"");
        assert_eq!(field(&pod, "metadata.labels['b']").unwrap(), "2");
        assert_eq!(field(&pod, "metadata.labels['nope']").unwrap(), "");
        assert_eq!(field(&pod, "metadata.name").unwrap(), "web");
        assert_eq!(field(&pod, "spec.nodeName"), None, "volumes have metadata only");
    }

    fn read(pod: &Pod, node: &Allocatable, resource: &str, divisor: &str) -> Option<String> {
        let item = DownwardItem {
            resource: resource.into(),
            divisor: divisor.into(),
            container: "c".into(),
            ..DownwardItem::default()
        };
        super::resource(pod, &item, node).ok()
    }

    #[test]
    fn amounts_are_divided_and_rounded_up() {
        for (resource, divisor, amount) in [
            ("limits.cpu", "", Some("2")),
            ("limits.cpu", "1m", Some("1500")),
            ("requests.cpu", "1m", Some("250")),
            ("limits.memory", "1Mi", Some("64")),
            ("limits.memory", "1Gi", Some("1")),
            ("limits.memory", "", Some("67108864")),
            ("requests.memory", "", Some("0")),
            ("limits.hugepages-2Mi", "", Some("0")),
            ("limits.example.com/gpu", "", None),
            ("most.cpu", "", None),
        ] {
            let read = read(&pod(), &Allocatable::default(), resource, divisor);
            assert_eq!(read.as_deref(), amount, "{resource} / {divisor:?}");
        }
    }

    #[test]
    fn the_node_is_the_limit_of_a_container_without_one() {
        let (memory, ephemeral_storage) = (Bytes(3 << 30), Bytes(5 << 30));
        let node = Allocatable { cpu: 3500, memory, ephemeral_storage };
        let mut pod = pod();
        for limit in [None, Some("0")] {
            let resources = limit.into_iter().flat_map(|limit| {
                ["limits.cpu", "limits.memory", "limits.ephemeral-storage"]
                    .map(|name| (name.to_owned(), limit.to_owned()))
            });
            pod.containers[0].resources = resources.collect();
            for (name, divisor, amount, asked) in [
                ("cpu", "", "4", "0"),
                ("cpu", "1m", "3500", "0"),
                ("memory", "1Mi", "3072", "0"),
                ("ephemeral-storage", "1Gi", "5", "0"),
                ("hugepages-2Mi", "", "0", "0"),
            ] {
                let read = |kind: &str, node| read(&pod, node, &format!("{kind}.{name}"), divisor);
                assert_eq!(read("limits", &node).as_deref(), Some(amount), "{name} {limit:?}");
                assert_eq!(
                    read("requests", &node).as_deref(),
                    Some(asked),
                    "{name}: the node asks for nothing"
                );
                let unknown = read("limits", &Allocatable::default());
                assert_eq!(
                    unknown.is_none(),
                    name != "hugepages-2Mi",
                    "{name}: the node's resources are unknown"
                );
            }
        }
    }
}
