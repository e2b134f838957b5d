//! A manifest of each kind, and its conversion.

use api::environment::Variable;
use api::{PersistentSource, ServicePort};
use expect_test::expect;
use serde_json::json;

use super::*;

fn read(document: Value) -> String {
    match objects(document) {
        Ok(objects) => format!("{objects:#?}"),
        Err(error) => api::error::chain(&error),
    }
}

#[test]
fn resources_get_the_defaults_of_the_api_server() {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
        "spec": {
            "resources": {"limits": {"memory": "32Mi", "hugepages-2Mi": "4Mi"}},
            "initContainers": [
                {"name": "first"},
                {"name": "proxy", "restartPolicy": "Always", "resources": {"requests": {"memory": "1Mi"}}},
            ],
            "containers": [{
                "name": "main",
                "resources": {"limits": {"memory": "16Mi", "cpu": "2"}, "requests": {"cpu": "1"}},
            }],
        },
    });
    let objects = objects(pod).expect("it is well-formed");
    let [Object::Pod(pod)] = objects.as_slice() else { panic!("it is one pod") };
    use api::ContainerKind::{Init, Regular, Sidecar};
    let kinds: Vec<_> = pod.containers.iter().map(|container| container.kind).collect();
    assert_eq!(kinds, [Init, Sidecar, Regular]);
    let main = &pod.containers[2].resources;
    assert_eq!((main["requests.memory"].as_str(), main["requests.cpu"].as_str()), ("16Mi", "1"));
    let own = &pod.resources;
    assert_eq!(own["limits.memory"], "32Mi");
    assert_eq!(own["requests.memory"], (17_u64 << 20).to_string(), "its containers' together");
    assert_eq!(own["requests.hugepages-2Mi"], "4Mi", "the limit, where no container requests any");
}

#[test]
fn a_pod_keeps_what_its_volumes_need() {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "uid": "u1", "deletionTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {
            "securityContext": {"fsGroup": 2000, "fsGroupChangePolicy": "OnRootMismatch"},
            "hostname": "asked-for", "hostnameOverride": "web.example.org",
            "initContainers": [{"name": "first", "volumeDevices": [{"name": "raw", "devicePath": "/dev/x"}]}],
            "containers": [{
                "name": "main",
                "resources": {"limits": {"ephemeral-storage": "1Gi", "cpu": "2"}},
                "volumeMounts": [{"name": "data", "mountPath": "/data", "readOnly": true, "subPath": "a"}],
            }],
            "volumes": [
                {"name": "data", "persistentVolumeClaim": {"claimName": "c", "readOnly": true}},
                {"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}},
                {"name": "cfg", "configMap": {"name": "m", "items": [{"key": "k", "path": "p", "mode": 256}]}},
                {"name": "in", "csi": {"driver": "d", "volumeAttributes": {"a": "b"}}},
                {"name": "own", "ephemeral": {"volumeClaimTemplate": {"spec": {
                    "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}}},
                {"name": "tok", "projected": {"sources": [
                    {"serviceAccountToken": {"path": "t"}},
                    {"clusterTrustBundle": {"name": "b", "path": "p"}}]}},
                {"name": "old", "flocker": {"datasetName": "x"}},
            ],
        },
    });
    let objects = objects(pod).expect("it is well-formed");
    let [Object::Pod(pod)] = objects.as_slice() else { panic!("it is one pod") };
    assert_eq!((pod.meta.namespace.as_str(), pod.service_account.as_str()), ("default", "default"));
    assert!(pod.meta.is_deleting() && pod.security.fs_group_on_root_mismatch);
    assert_eq!(
        (pod.hostname.as_str(), pod.hostname_override.as_deref()),
        ("asked-for", Some("web.example.org"))
    );
    assert_eq!(pod.containers[1].ephemeral_storage_limit, Some(Bytes(1 << 30)));
    assert_eq!(pod.containers[1].resources["limits.cpu"], "2");
    assert_eq!(pod.devices().len() + pod.mounted().len(), 2);
    let sources: String = pod.volumes.iter().map(|volume| format!("{volume:?}\n")).collect();
    expect![[r#"
        PodVolume { name: "data", source: Claim { claim: "c", read_only: true } }
        PodVolume { name: "tmp", source: EmptyDir { medium: "Memory", size_limit: Some(Bytes(16777216)) } }
        PodVolume { name: "cfg", source: ConfigMap(Content { name: "m", items: [KeyFile { key: "k", path: "p", mode: Some(256) }], default_mode: 420, optional: false }) }
        PodVolume { name: "in", source: Csi(InlineCsi { driver: "d", fs_type: "", read_only: false, attributes: {"a": "b"}, secret: None }) }
        PodVolume { name: "own", source: Ephemeral { template: ClaimTemplate { labels: {}, annotations: {}, spec: ClaimSpec { access_modes: [ReadWriteOnce], request: Bytes(1073741824), volume: "", mode: Filesystem, class: None, attributes_class: "", data_source: None, selector: None } } } }
        PodVolume { name: "tok", source: Projected { sources: [ServiceAccountToken { audience: "", expiration: 3600, path: "t" }, Other { kind: "clusterTrustBundle" }], default_mode: 420 } }
        PodVolume { name: "old", source: Other { kind: "flocker" } }
    "#]].assert_eq(&sources);
}

#[test]
fn a_container_knows_where_its_variables_come_from() {
    let environment = json!([
        {"name": "A", "value": "a"},
        {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "C", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}},
        {"name": "D", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}},
        {"name": "E", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": true}}},
        {"name": "F", "valueFrom": {"fileKeyRef": {"volumeName": "v", "path": "p", "key": "k"}}},
        {"name": "G"},
    ]);
    let imports = json!([{"configMapRef": {"name": "m"}}, {"prefix": "S_", "secretRef": {"name": "s"}}]);
    let container = |name: &str| json!({"name": name, "env": environment, "envFrom": imports});
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
        "spec": {"containers": [container("main")], "ephemeralContainers": [container("look")]},
    });
    let objects = objects(pod).expect("it is well-formed");
    let [Object::Pod(pod)] = objects.as_slice() else { panic!("it is one pod") };
    let line = |variable: &Variable| format!("{} {:?}\n", variable.name, variable.origin);
    let [main, look] = pod.containers.as_slice() else { panic!("there are two") };
    assert_eq!((&main.environment, &main.imports), (&look.environment, &look.imports));
    let variables: String = main.environment.iter().map(line).collect();
    expect![[r#"
        A Text("a")
        B Field("metadata.name")
        C Amount { container: "", resource: "limits.cpu", divisor: "1m" }
        D Key(Holder { kind: ConfigMap, name: "m", optional: false }, "k")
        E Key(Holder { kind: Secret, name: "s", optional: true }, "k")
        F Other("fileKeyRef")
        G Text("")
    "#]]
    .assert_eq(&variables);
    let imports: String = main.imports.iter().map(|import| format!("{import:?}\n")).collect();
    expect![[r#"
        Import { holder: Holder { kind: ConfigMap, name: "m", optional: false }, prefix: "" }
        Import { holder: Holder { kind: Secret, name: "s", optional: false }, prefix: "S_" }
    "#]]
    .assert_eq(&imports);
}

#[test]
fn a_service_has_an_address_unless_it_is_elsewhere() {
    let service = |spec: Value| {
        let objects = objects(json!({"kind": "Service", "metadata": {"name": "web"}, "spec": spec}));
        let objects = objects.expect("it is well-formed");
        let [Object::Service(service)] = objects.as_slice() else { panic!("it is one service") };
        assert_eq!((service.meta.namespace.as_str(), service.meta.name.as_str()), ("default", "web"));
        (service.address.clone(), service.has_address(), service.ports.clone())
    };
    let port = |name: &str, number, protocol: &str| ServicePort {
        name: name.to_owned(),
        number,
        protocol: protocol.to_owned(),
    };
    let ports = json!([{"port": 80}, {"name": "log", "port": 514, "protocol": "UDP", "targetPort": "x"}]);
    let there = service(json!({"clusterIP": "10.0.0.7", "ports": ports}));
    assert_eq!(there, ("10.0.0.7".to_owned(), true, vec![port("", 80, "TCP"), port("log", 514, "UDP")]));
    assert_eq!(service(json!({"type": "NodePort"})), (String::new(), false, Vec::new()));
    for without in [json!({"clusterIP": "None"}), json!({"type": "ExternalName", "externalName": "x.org"})] {
        assert_eq!(service(without), ("None".to_owned(), false, Vec::new()));
    }
}

#[test]
fn pod_has_service_variables_unless_it_disables_them() {
    for (said, without) in [(json!({}), false), (json!(true), false), (json!(false), true)] {
        let mut spec = json!({"containers": []});
        if said.is_boolean() {
            spec["enableServiceLinks"] = said.clone();
        }
        let objects = objects(json!({"kind": "Pod", "metadata": {"name": "web"}, "spec": spec}));
        let objects = objects.expect("it is well-formed");
        let [Object::Pod(pod)] = objects.as_slice() else { panic!("it is one pod") };
        assert_eq!(pod.without_services, without, "{said}");
    }
}

#[test]
fn a_volume_keeps_the_order_of_its_modes_and_all_its_secrets() {
    let volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv"},
        "spec": {
            "capacity": {"storage": "16Mi"}, "accessModes": ["ReadOnlyMany", "ReadWriteOnce"],
            "claimRef": {"namespace": "default", "name": "c", "uid": "u"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}]}]}},
            "csi": {"driver": "d", "volumeHandle": "h", "nodeStageSecretRef": {"name": "s", "namespace": "n"}},
        },
    });
    expect![[r#"
        [
            Volume(
                Volume {
                    meta: Meta {
                        name: "pv",
                        namespace: "",
                        uid: "",
                        resource_version: "",
                        created: None,
                        deleted: None,
                        deletion_grace: None,
                        finalizers: [],
                        labels: {},
                        annotations: {},
                        owners: [],
                    },
                    capacity: Bytes(
                        16777216,
                    ),
                    access_modes: [
                        ReadOnlyMany,
                        ReadWriteOnce,
                    ],
                    claim: Some(
                        ClaimReference {
                            claim: default/c,
                            uid: "u",
                        },
                    ),
                    mount_options: [],
                    mode: Some(
                        Filesystem,
                    ),
                    affinity: Some(
                        NodeAffinity {
                            terms: [
                                [
                                    Requirement {
                                        key: "k",
                                        operator: "In",
                                        values: [
                                            "v",
                                        ],
                                    },
                                ],
                            ],
                        },
                    ),
                    source: Csi(
                        CsiSource {
                            driver: "d",
                            handle: "h",
                            fs_type: "",
                            read_only: false,
                            attributes: {},
                            controller_publish_secret: None,
                            node_stage_secret: Some(
                                n/s,
                            ),
                            node_publish_secret: None,
                            controller_expand_secret: None,
                            node_expand_secret: None,
                        },
                    ),
                    reclaim: "Retain",
                    class: "",
                    attributes_class: "",
                    phase: "",
                },
            ),
        ]"#]]
    .assert_eq(&read(volume));
}

#[test]
fn defaults_are_those_of_the_api_server() {
    let driver = json!({"kind": "CSIDriver", "metadata": {"name": "d"}, "spec": {}});
    let [Object::CsiDriver(driver)] = &objects(driver).expect("it is well-formed")[..] else { panic!() };
    let mut expected = api::CsiDriver::default();
    expected.meta.name = "d".to_owned();
    assert_eq!(**driver, expected);
    let claim = json!({"kind": "PersistentVolumeClaim", "metadata": {"name": "c"}, "spec": {}});
    let [Object::Claim(claim)] = &objects(claim).expect("it is well-formed")[..] else { panic!() };
    assert_eq!((claim.status.phase, claim.spec.mode), Default::default());
}

#[test]
fn volume_without_a_plugin_has_the_name_of_its_kind() {
    let volume = json!({
        "kind": "PersistentVolume", "metadata": {"name": "pv"},
        "spec": {
            "capacity": {"storage": "16Mi"}, "accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem",
            "claimRef": {"namespace": "default", "name": "c"}, "mountOptions": ["ro"], "storageClassName": "s",
            "persistentVolumeReclaimPolicy": "Retain", "volumeAttributesClassName": "v",
            "nodeAffinity": {"required": {"nodeSelectorTerms": []}},
            "iscsi": {"targetPortal": "10.0.0.1", "iqn": "i", "lun": 0},
        },
    });
    let [Object::Volume(volume)] = &objects(volume).expect("it is well-formed")[..] else { panic!() };
    assert_eq!(volume.source, PersistentSource::Other { kind: "iscsi".to_owned() });
}

#[test]
fn secrets_are_read_and_not_shown() {
    let secret =
        json!({"kind": "Secret", "metadata": {"name": "s"}, "data": {"a": "aGk="}, "stringData": {"b": "x"}});
    let objects = objects(secret).expect("it is well-formed");
    let [Object::Secret(secret)] = objects.as_slice() else { panic!("it is one secret") };
    assert_eq!(secret.data["a"].reveal(), b"hi");
    assert!(!format!("{secret:?}").contains("104"), "{secret:?}");
}

#[test]
fn unreadable_object_is_named() {
    let bad = json!({"kind": "PersistentVolume", "metadata": {"name": "pv"}, "spec": {"capacity": {"storage": "big"}}});
    expect!["cannot read `big` as an amount of storage in PersistentVolume `pv`"].assert_eq(&read(bad));
    let bad = json!({"kind": "PersistentVolume", "metadata": {"name": "pv"}, "spec": {"accessModes": "RWO"}});
    expect![[r#"cannot read PersistentVolume `pv`: invalid type: string "RWO", expected a sequence"#]]
        .assert_eq(&read(bad));
    expect!["cannot use a `Deployment`: only pods, claims, volumes, snapshots, classes, drivers, secrets, config maps and services count"].assert_eq(&read(json!({"kind": "Deployment", "metadata": {"name": "x"}})));
    expect!["the object has no `kind`"].assert_eq(&read(json!({"metadata": {}})));
    expect!["[]"].assert_eq(&read(json!({"kind": "List", "items": []})));
}

#[test]
fn container_keeps_the_fields_for_its_runtime() {
    let pod = json!({
        "kind": "Pod", "metadata": {"name": "web"},
        "spec": {
            "hostPID": true, "hostIPC": true, "shareProcessNamespace": true, "terminationGracePeriodSeconds": 5,
            "priorityClassName": "system-node-critical",
            "securityContext": {
                "runAsGroup": 5, "runAsNonRoot": true, "supplementalGroupsPolicy": "Strict",
                "seccompProfile": {"type": "RuntimeDefault"}, "appArmorProfile": {"type": "Unconfined"},
            },
            "containers": [{
                "name": "main", "image": "img:1", "command": ["run"], "args": ["-x"], "workingDir": "/srv",
                "stdin": true, "stdinOnce": true, "tty": true, "terminationMessagePolicy": "FallbackToLogsOnError",
                "ports": [{"containerPort": 80}],
                "lifecycle": {"preStop": {"sleep": {"seconds": 1}}, "stopSignal": "SIGINT"},
                "securityContext": {
                    "runAsGroup": 6, "runAsNonRoot": false, "allowPrivilegeEscalation": false,
                    "readOnlyRootFilesystem": true, "procMount": "Unmasked",
                    "capabilities": {"add": ["SYS_TIME"], "drop": ["ALL"]},
                    "seccompProfile": {"type": "Localhost", "localhostProfile": "own.json"},
                },
            }],
            "ephemeralContainers": [{"name": "look", "image": "img:2", "targetContainerName": "main"}],
        },
    });
    let objects = objects(pod).expect("it is well-formed");
    let [Object::Pod(pod)] = objects.as_slice() else { panic!("it is one pod") };
    assert!(pod.host_pid && pod.host_ipc && pod.shares_processes && pod.node_critical);
    assert_eq!(pod.priority, 2_000_001_000);
    let plain = json!({"kind": "Pod", "metadata": {"name": "plain"}, "spec": {
        "containers": [], "priorityClassName": "system-cluster-critical"}});
    let plain = super::objects(plain).expect("it is well-formed");
    assert!(
        matches!(plain.as_slice(), [Object::Pod(pod)] if !pod.node_critical && pod.priority == 2_000_000_000)
    );
    let (main, look) = (&pod.containers[0], &pod.containers[1]);
    expect![[r#"
        Some(5) "Strict" Confinement { run_as_group: Some(5), run_as_non_root: Some(true), seccomp: Some(RuntimeDefault), apparmor: Some(Unconfined) }
        Program { image: "img:1", command: ["run"], args: ["-x"], working_dir: "/srv", stdin: true, stdin_once: true, tty: true, stop_signal: "SIGINT" }
        Powers { add: ["SYS_TIME"], drop: ["ALL"], no_new_privileges: true, read_only_root: true, unmasked_proc: true }
        Confinement { run_as_group: Some(6), run_as_non_root: Some(false), seccomp: Some(Localhost("own.json")), apparmor: None }
        [Port { name: "", host_port: 0, container_port: 80, protocol: "TCP", host_ip: "" }] Some("{\"sleep\":{\"seconds\":1}}") "FallbackToLogsOnError"
        "img:2" "main"
    "#]].assert_eq(&format!(
        "{:?} {:?} {:?}\n{:?}\n{:?}\n{:?}\n{:?} {:?} {:?}\n{:?} {:?}\n",
        pod.termination_grace,
        pod.security.supplemental_groups_policy,
        pod.security.confinement,
        main.program,
        main.powers,
        main.confinement,
        main.ports,
        main.pre_stop,
        main.termination_message_policy,
        look.program.image,
        look.target,
    ));
}

#[test]
fn unknown_field_is_reported_with_the_nearest() {
    let pod = |container: Value| {
        let spec =
            json!({"containers": [{"name": "a"}, container], "volumes": [{"name": "v", "emptyDir": {}}]});
        objects(json!({"kind": "Pod", "metadata": {"name": "web"}, "spec": spec})).map(|all| all.len())
    };
    let text = |error: ConvertError| error.to_string();
    assert_eq!(
        pod(json!({"name": "c", "volumeMount": [{"name": "v", "mountPath": "/v"}]})).map_err(text),
        Err("cannot read Pod `web`: there is no field `spec.containers[1].volumeMount`; the nearest is \
             `volumeMounts`"
            .to_owned())
    );
    // A field that is null counts as left out, and the keys of a map are the author's.
    assert_eq!(pod(json!({"name": "c", "volumeMount": null})).map_err(text), Ok(1));
    assert_eq!(
        pod(json!({"name": "c", "resources": {"limits": {"example.com/x": "1"}}})).map_err(text),
        Ok(1)
    );
    let claim = json!({"kind": "PersistentVolumeClaim", "metadata": {"name": "d", "label": {}}, "spec": {}});
    assert!(text(objects(claim).unwrap_err()).contains("`metadata.label`; the nearest is `labels`"));
}
