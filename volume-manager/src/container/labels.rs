//! Labels and annotations that a runtime keeps for the node: by them a node that has restarted recognises a container
//! and can end it. Pure.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use api::{Container, Pod};

/// The labels: container, pod and uid.
pub(super) fn labels(pod: &Pod, container: &Container) -> BTreeMap<&'static str, String> {
    BTreeMap::from([
        ("io.kubernetes.pod.name", pod.meta.name.clone()),
        ("io.kubernetes.pod.namespace", pod.meta.namespace.clone()),
        ("io.kubernetes.pod.uid", pod.meta.uid.clone()),
        ("io.kubernetes.container.name", container.name.clone()),
    ])
}

/// The annotations: what ending the container depends on.
pub(super) fn annotations(pod: &Pod, container: &Container, attempt: u32) -> BTreeMap<&'static str, String> {
    let path = container.termination_message_path.clone();
    let mut annotations = BTreeMap::from([
        ("io.kubernetes.container.hash", format!("{:x}", hash(container))),
        ("io.kubernetes.container.restartCount", attempt.to_string()),
        ("io.kubernetes.container.terminationMessagePath", path),
        ("io.kubernetes.container.terminationMessagePolicy", container.termination_message_policy.clone()),
    ]);
    let ports = match container.ports.as_slice() {
        [] => None,
        ports => Some(serde_json::to_string(ports).expect("ports are numbers and words")),
    };
    let if_set = [
        ("io.kubernetes.pod.deletionGracePeriod", pod.meta.deletion_grace.map(|grace| grace.to_string())),
        ("io.kubernetes.pod.terminationGracePeriod", pod.termination_grace.map(|grace| grace.to_string())),
        ("io.kubernetes.container.preStopHandler", container.pre_stop.clone()),
        ("io.kubernetes.container.ports", ports),
    ];
    annotations.extend(if_set.into_iter().filter_map(|(name, value)| Some((name, value?))));
    annotations
}

/// A hash that changes with the container's name and image alone: another hash is another container.
///
/// FNV-1a over how the kubelet's `HashContainer` prints the bytes of its JSON: nodes agree across versions.
fn hash(container: &Container) -> u32 {
    let known = BTreeMap::from([("image", &container.program.image), ("name", &container.name)]);
    let json = serde_json::to_string(&known).expect("words can be written");
    let mut printed = String::from("([]uint8)[");
    for (index, byte) in json.bytes().enumerate() {
        let space = if index == 0 { "" } else { " " };
        write!(printed, "{space}{byte}").expect("a string takes all that is written to it");
    }
    printed.push(']');
    printed.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use api::Meta;
    use api::runtime::Port;

    use super::*;

    /// The value that Kubernetes' own tests say must never change.
    #[test]
    fn the_hash_is_the_kubelets() {
        let mut container = Container { name: "test_container".into(), ..Container::default() };
        container.program.image = "foo/image:v1".into();
        container.program.args = vec!["/bin/sh".into()];
        assert_eq!(hash(&container), 0x8e45_cbd0);
    }

    #[test]
    fn labels_hold_the_data_to_terminate_the_container() {
        let mut pod = Pod { meta: Meta::named("ns", "web"), ..Pod::default() };
        let mut container = Container { name: "main".into(), ..Container::default() };
        container.termination_message_path = "/dev/termination-log".into();
        container.termination_message_policy = "File".into();
        let lines = |pod: &Pod, container: &Container| {
            let annotations = annotations(pod, container, 3).into_iter();
            annotations.map(|(name, value)| format!("{name}={value}\n")).collect::<String>()
        };
        expect_test::expect![[r#"
            io.kubernetes.container.hash=a9d38c3e
            io.kubernetes.container.restartCount=3
            io.kubernetes.container.terminationMessagePath=/dev/termination-log
            io.kubernetes.container.terminationMessagePolicy=File
        "#]]
        .assert_eq(&lines(&pod, &container));
        (pod.meta.deletion_grace, pod.termination_grace) = (Some(5), Some(30));
        container.pre_stop = Some(r#"{"sleep":{"seconds":1}}"#.into());
        let port = Port { container_port: 80, host_ip: "10.0.0.1".into(), ..Port::default() };
        container.ports = vec![port, Port { name: "a".into(), host_port: 1, ..Port::default() }];
        expect_test::expect![[r#"
            io.kubernetes.container.hash=a9d38c3e
            io.kubernetes.container.ports=[{"containerPort":80,"hostIP":"10.0.0.1"},{"name":"a","hostPort":1,"containerPort":0}]
            io.kubernetes.container.preStopHandler={"sleep":{"seconds":1}}
            io.kubernetes.container.restartCount=3
            io.kubernetes.container.terminationMessagePath=/dev/termination-log
            io.kubernetes.container.terminationMessagePolicy=File
            io.kubernetes.pod.deletionGracePeriod=5
            io.kubernetes.pod.terminationGracePeriod=30
        "#]].assert_eq(&lines(&pod, &container));
    }
}
