//! Invalid requests: missing or too long fields, strange paths, impossible wishes. Each gets the code that the
//! specification prescribes, and the books stay unchanged.

use std::collections::BTreeMap;
use std::path::Path;

use csi_proto::v1::volume_capability::access_mode::Mode;
use csi_proto::v1::volume_capability::{AccessMode, AccessType, MountVolume};
use csi_proto::v1::{self, VolumeCapability};
use serial_test::file_serial;
use tonic::{Code, Status};

use crate::scene::{Scene, WRITER, code};
use crate::world::{block, create, in_namespace, mounted, publish, stage, text};

use Code::{AlreadyExists, FailedPrecondition, InvalidArgument, NotFound, OutOfRange};

/// Collects answers with an unexpected code.
struct Answers {
    wrong: Vec<String>,
}

impl Answers {
    fn expect<T>(&mut self, what: &str, expected: Code, answer: Result<T, Status>) {
        let found = code(&answer);
        if found != expected {
            self.wrong.push(format!("{what}: {found:?} and not {expected:?}"));
        }
    }
}

fn too_long() -> String {
    "x".repeat(129)
}

fn too_much() -> BTreeMap<String, String> {
    [("key".to_owned(), "v".repeat(4096))].into()
}

/// Capabilities with a missing part.
fn incomplete() -> Vec<Option<VolumeCapability>> {
    let mount = || Some(AccessType::Mount(MountVolume::default()));
    let unknown = AccessMode { mode: 0 };
    let strange = AccessMode { mode: 99 };
    vec![
        None,
        Some(VolumeCapability::default()),
        Some(VolumeCapability { access_mode: None, access_type: mount() }),
        Some(VolumeCapability { access_mode: Some(unknown), access_type: mount() }),
        Some(VolumeCapability { access_mode: Some(strange), access_type: mount() }),
        Some(VolumeCapability { access_mode: Some(AccessMode { mode: 1 }), access_type: None }),
    ]
}

/// Paths that are no plain absolute paths.
const STRANGE_PATHS: [&str; 5] = ["", "relative/path", "/a/../../etc", "..", "/a\0b"];

/// Runs a test against a published volume, and checks that the books stay unchanged.
fn check(test: impl AsyncFnOnce(&mut Scene, &mut Answers) + Send) {
    in_namespace(async move |world| {
        let mut scene = Scene::mount(world).await.published().await;
        let before = scene.world.control().books().await.unwrap();
        let mut answers = Answers { wrong: Vec::new() };
        test(&mut scene, &mut answers).await;
        assert!(answers.wrong.is_empty(), "{:#?}", answers.wrong);
        assert_eq!(scene.world.control().books().await.unwrap(), before);
    });
}

#[test]
#[file_serial(root)]
fn invalid_creations() {
    check(async |scene, answers| {
        for (what, expected, request) in creations() {
            answers.expect(what, expected, scene.csi.controller.create_volume(request).await);
        }
        for capability in incomplete().into_iter().flatten() {
            let answer = scene.csi.controller.create_volume(create("new", capability)).await;
            answers.expect("incomplete capability", InvalidArgument, answer);
        }
    });
}

/// Requests that must be refused.
fn creations() -> Vec<(&'static str, Code, v1::CreateVolumeRequest)> {
    let good = || create("new", mounted("", WRITER));
    let range = |required_bytes, limit_bytes| Some(v1::CapacityRange { required_bytes, limit_bytes });
    let unsupported = mounted("ext4", Mode::MultiNodeMultiWriter);
    let backed = |name: &str| [("backing".to_owned(), name.to_owned())].into();
    vec![
        ("no name", InvalidArgument, v1::CreateVolumeRequest { name: String::new(), ..good() }),
        ("long name", InvalidArgument, v1::CreateVolumeRequest { name: too_long(), ..good() }),
        ("control characters", InvalidArgument, v1::CreateVolumeRequest { name: "a\nb".into(), ..good() }),
        ("no capability", InvalidArgument, v1::CreateVolumeRequest { volume_capabilities: vec![], ..good() }),
        ("large parameters", InvalidArgument, v1::CreateVolumeRequest { parameters: too_much(), ..good() }),
        ("large secrets", InvalidArgument, v1::CreateVolumeRequest { secrets: too_much(), ..good() }),
        (
            "strange backing",
            InvalidArgument,
            v1::CreateVolumeRequest { parameters: backed("stone"), ..good() },
        ),
        ("unknown file system", InvalidArgument, create("new", mounted("ext9", WRITER))),
        (
            "many writers on an image",
            InvalidArgument,
            v1::CreateVolumeRequest { parameters: backed("loop"), ..create("new", unsupported) },
        ),
        (
            "a device in a directory",
            InvalidArgument,
            v1::CreateVolumeRequest { parameters: backed("directory"), ..create("new", block(WRITER)) },
        ),
        ("negative size", OutOfRange, v1::CreateVolumeRequest { capacity_range: range(-1, 0), ..good() }),
        (
            "limit below need",
            OutOfRange,
            v1::CreateVolumeRequest { capacity_range: range(9 << 20, 8 << 20), ..good() },
        ),
        (
            "limit below anything",
            OutOfRange,
            v1::CreateVolumeRequest { capacity_range: range(0, 4096), ..good() },
        ),
        (
            "more than there is",
            OutOfRange,
            v1::CreateVolumeRequest { capacity_range: range(1 << 60, 0), ..good() },
        ),
        (
            "empty source",
            InvalidArgument,
            v1::CreateVolumeRequest { volume_content_source: Some(Default::default()), ..good() },
        ),
        (
            "mutable parameter",
            InvalidArgument,
            v1::CreateVolumeRequest { mutable_parameters: backed("loop"), ..good() },
        ),
        (
            "another size",
            AlreadyExists,
            v1::CreateVolumeRequest {
                capacity_range: range(64 << 20, 0),
                ..create("data", mounted("", WRITER))
            },
        ),
    ]
}

#[test]
#[file_serial(root)]
fn invalid_attachments_and_deletions() {
    check(async |scene, answers| {
        let id = scene.id.clone();
        let attach = |volume_id: &str, node_id: &str| v1::ControllerPublishVolumeRequest {
            volume_id: volume_id.into(),
            node_id: node_id.into(),
            volume_capability: Some(mounted("", WRITER)),
            ..Default::default()
        };
        let controller = &mut scene.csi.controller;
        for (volume, node, expected) in [
            ("", "node-1", InvalidArgument),
            (&*id, "", InvalidArgument),
            (&too_long(), "node-1", InvalidArgument),
            (&id, &"n".repeat(257), InvalidArgument),
            ("no-such-volume", "node-1", NotFound),
            (&id, "no-such-node", NotFound),
        ] {
            let answer = controller.controller_publish_volume(attach(volume, node)).await;
            answers.expect("attach", expected, answer);
        }
        for capability in incomplete() {
            let request =
                v1::ControllerPublishVolumeRequest { volume_capability: capability, ..attach(&id, "node-1") };
            answers.expect("attach", InvalidArgument, controller.controller_publish_volume(request).await);
        }
        let none = v1::ControllerUnpublishVolumeRequest::default();
        answers.expect("detach nothing", InvalidArgument, controller.controller_unpublish_volume(none).await);
        answers.expect(
            "delete nothing",
            InvalidArgument,
            controller.delete_volume(v1::DeleteVolumeRequest::default()).await,
        );
        let in_use = v1::DeleteVolumeRequest { volume_id: id.clone(), ..Default::default() };
        answers.expect("delete in use", FailedPrecondition, controller.delete_volume(in_use).await);
    });
}

#[test]
#[file_serial(root)]
fn invalid_expansions_confirmations_and_snapshots() {
    check(async |scene, answers| {
        let id = scene.id.clone();
        let controller = &mut scene.csi.controller;
        let grow = |volume_id: &str, capacity_range| v1::ControllerExpandVolumeRequest {
            volume_id: volume_id.into(),
            capacity_range,
            ..Default::default()
        };
        let range = |required_bytes, limit_bytes| Some(v1::CapacityRange { required_bytes, limit_bytes });
        for (what, expected, request) in [
            ("expand nothing", InvalidArgument, grow("", range(1, 0))),
            ("expand to nothing", InvalidArgument, grow(&id, None)),
            ("expand the unknown", NotFound, grow("none", range(1, 0))),
            ("expand below its size", OutOfRange, grow(&id, range(0, 4096))),
        ] {
            answers.expect(what, expected, controller.controller_expand_volume(request).await);
        }
        let validate = v1::ValidateVolumeCapabilitiesRequest { volume_id: id.clone(), ..Default::default() };
        answers.expect(
            "confirm nothing",
            InvalidArgument,
            controller.validate_volume_capabilities(validate).await,
        );
        let snapshot = |source: &str, name: &str| v1::CreateSnapshotRequest {
            source_volume_id: source.into(),
            name: name.into(),
            ..Default::default()
        };
        answers.expect(
            "snapshot of nothing",
            InvalidArgument,
            controller.create_snapshot(snapshot("", "s")).await,
        );
        answers.expect(
            "snapshot without name",
            InvalidArgument,
            controller.create_snapshot(snapshot(&id, "")).await,
        );
        answers.expect(
            "snapshot, long name",
            InvalidArgument,
            controller.create_snapshot(snapshot(&id, &too_long())).await,
        );
        answers.expect(
            "snapshot of the unknown",
            NotFound,
            controller.create_snapshot(snapshot("none", "s")).await,
        );
        let negative = v1::ListVolumesRequest { max_entries: -1, ..Default::default() };
        answers.expect("negative page", InvalidArgument, controller.list_volumes(negative).await);
    });
}

#[test]
#[file_serial(root)]
fn invalid_stagings() {
    check(async |scene, answers| {
        let (id, staging) = (scene.id.clone(), scene.staging.clone());
        let good = || stage(&id, &staging, mounted("", WRITER));
        for path in STRANGE_PATHS {
            let request = v1::NodeStageVolumeRequest { staging_target_path: path.into(), ..good() };
            answers.expect(path, InvalidArgument, scene.csi.node.node_stage_volume(request).await);
            let answer = scene.csi.unstage(&id, Path::new(path)).await;
            answers.expect(path, InvalidArgument, answer);
        }
        for capability in incomplete() {
            let request = v1::NodeStageVolumeRequest { volume_capability: capability, ..good() };
            answers.expect("capability", InvalidArgument, scene.csi.node.node_stage_volume(request).await);
        }
        let other = scene.world.directory("other-staging");
        let missing = scene.world.path("no-directory");
        for (what, expected, request) in [
            ("no id", InvalidArgument, v1::NodeStageVolumeRequest { volume_id: String::new(), ..good() }),
            ("long id", InvalidArgument, v1::NodeStageVolumeRequest { volume_id: too_long(), ..good() }),
            ("unknown", NotFound, v1::NodeStageVolumeRequest { volume_id: "../../etc".into(), ..good() }),
            ("context", InvalidArgument, v1::NodeStageVolumeRequest { volume_context: too_much(), ..good() }),
            ("elsewhere", FailedPrecondition, stage(&id, &other, mounted("", WRITER))),
            ("nowhere", FailedPrecondition, stage(&id, &missing, mounted("", WRITER))),
            ("other mode", AlreadyExists, stage(&id, &staging, mounted("", Mode::SingleNodeReaderOnly))),
            (
                "too many writers",
                FailedPrecondition,
                stage(&id, &staging, mounted("", Mode::MultiNodeMultiWriter)),
            ),
        ] {
            answers.expect(what, expected, scene.csi.node.node_stage_volume(request).await);
        }
        answers.expect("unstage the unknown", NotFound, scene.csi.unstage("none", &staging).await);
        answers.expect("unstage while published", FailedPrecondition, scene.csi.unstage(&id, &staging).await);
    });
}

#[test]
#[file_serial(root)]
fn invalid_publications() {
    check(async |scene, answers| {
        let (id, staging, target) = (scene.id.clone(), scene.staging.clone(), scene.target.clone());
        let good = || publish(&id, &staging, &target, mounted("", WRITER));
        for path in STRANGE_PATHS {
            let request = v1::NodePublishVolumeRequest { target_path: path.into(), ..good() };
            answers.expect(path, InvalidArgument, scene.csi.node.node_publish_volume(request).await);
            answers.expect(path, InvalidArgument, scene.csi.unpublish(&id, Path::new(path)).await);
        }
        for capability in incomplete() {
            let request = v1::NodePublishVolumeRequest { volume_capability: capability, ..good() };
            answers.expect("capability", InvalidArgument, scene.csi.node.node_publish_volume(request).await);
        }
        let link = scene.world.path("pod/link");
        std::os::unix::fs::symlink("/etc", &link).unwrap();
        let other = text(&scene.world.path("pod/other"));
        for (what, expected, request) in [
            ("no id", InvalidArgument, v1::NodePublishVolumeRequest { volume_id: String::new(), ..good() }),
            ("unknown", NotFound, v1::NodePublishVolumeRequest { volume_id: "none".into(), ..good() }),
            ("a link", InvalidArgument, v1::NodePublishVolumeRequest { target_path: text(&link), ..good() }),
            ("secrets", InvalidArgument, v1::NodePublishVolumeRequest { secrets: too_much(), ..good() }),
            (
                "no staging path",
                FailedPrecondition,
                v1::NodePublishVolumeRequest { staging_target_path: String::new(), ..good() },
            ),
            (
                "another staging path",
                FailedPrecondition,
                v1::NodePublishVolumeRequest {
                    staging_target_path: "/elsewhere".into(),
                    target_path: other,
                    ..good()
                },
            ),
            ("read-only now", AlreadyExists, v1::NodePublishVolumeRequest { readonly: true, ..good() }),
        ] {
            answers.expect(what, expected, scene.csi.node.node_publish_volume(request).await);
        }
        answers.expect("unpublish the unknown", NotFound, scene.csi.unpublish("none", &target).await);
        answers.expect("unpublish nothing", InvalidArgument, scene.csi.unpublish("", &target).await);
    });
}

#[test]
#[file_serial(root)]
fn invalid_statistics_and_node_expansions() {
    check(async |scene, answers| {
        let (id, target) = (scene.id.clone(), text(&scene.target));
        let stats = |volume_id: &str, volume_path: &str| v1::NodeGetVolumeStatsRequest {
            volume_id: volume_id.into(),
            volume_path: volume_path.into(),
            ..Default::default()
        };
        let grow = |volume_id: &str, volume_path: &str, required_bytes| v1::NodeExpandVolumeRequest {
            volume_id: volume_id.into(),
            volume_path: volume_path.into(),
            capacity_range: Some(v1::CapacityRange { required_bytes, limit_bytes: 0 }),
            ..Default::default()
        };
        for (volume, path, expected) in [
            ("", &*target, InvalidArgument),
            (&*id, "", InvalidArgument),
            ("none", &target, NotFound),
            (&id, "some/path", NotFound),
            (&id, "/tmp", NotFound),
        ] {
            answers.expect(
                "stats",
                expected,
                scene.csi.node.node_get_volume_stats(stats(volume, path)).await,
            );
            answers.expect("grow", expected, scene.csi.node.node_expand_volume(grow(volume, path, 0)).await);
        }
        answers.expect(
            "grow ahead",
            OutOfRange,
            scene.csi.node.node_expand_volume(grow(&id, &target, 1 << 30)).await,
        );
        answers.expect(
            "grow below",
            OutOfRange,
            scene.csi.node.node_expand_volume(grow(&id, &target, -1)).await,
        );
    });
}

#[test]
#[file_serial(root)]
fn invalid_snapshots_modifications_and_groups() {
    check(async |scene, answers| {
        let id = scene.id.clone();
        let controller = &mut scene.csi.controller;
        let validate = v1::ValidateVolumeCapabilitiesRequest {
            volume_id: "none".into(),
            volume_capabilities: vec![mounted("", WRITER)],
            ..Default::default()
        };
        answers.expect(
            "confirm the unknown",
            NotFound,
            controller.validate_volume_capabilities(validate).await,
        );
        let get = |snapshot_id: &str| v1::GetSnapshotRequest {
            snapshot_id: snapshot_id.into(),
            ..Default::default()
        };
        answers.expect("get no snapshot", InvalidArgument, controller.get_snapshot(get("")).await);
        answers.expect("get the unknown", NotFound, controller.get_snapshot(get("none")).await);
        let delete = |snapshot_id: &str| v1::DeleteSnapshotRequest {
            snapshot_id: snapshot_id.into(),
            ..Default::default()
        };
        answers.expect("delete no snapshot", InvalidArgument, controller.delete_snapshot(delete("")).await);
        answers.expect("delete the unknown", Code::Ok, controller.delete_snapshot(delete("none")).await);
        let modify = |volume_id: &str, key: &str| v1::ControllerModifyVolumeRequest {
            volume_id: volume_id.into(),
            mutable_parameters: [(key.to_owned(), "gold".to_owned())].into(),
            ..Default::default()
        };
        answers.expect(
            "modify nothing",
            InvalidArgument,
            controller.controller_modify_volume(modify("", "tier")).await,
        );
        answers.expect(
            "modify the unknown",
            NotFound,
            controller.controller_modify_volume(modify("none", "tier")).await,
        );
        answers.expect(
            "modify a colour",
            InvalidArgument,
            controller.controller_modify_volume(modify(&id, "colour")).await,
        );
        let group = |name: &str, sources: &[&str]| v1::CreateVolumeGroupSnapshotRequest {
            name: name.into(),
            source_volume_ids: sources.iter().map(|id| (*id).to_owned()).collect(),
            ..Default::default()
        };
        for (what, expected, request) in [
            ("group without name", InvalidArgument, group("", &[&id])),
            ("group of nothing", InvalidArgument, group("g", &[])),
            ("group of the unknown", NotFound, group("g", &[&id, "none"])),
        ] {
            answers.expect(what, expected, scene.csi.group.create_volume_group_snapshot(request).await);
        }
        let none = v1::DeleteVolumeGroupSnapshotRequest::default();
        answers.expect(
            "delete no group",
            InvalidArgument,
            scene.csi.group.delete_volume_group_snapshot(none).await,
        );
        let unknown =
            v1::GetVolumeGroupSnapshotRequest { group_snapshot_id: "none".into(), ..Default::default() };
        answers.expect(
            "get the unknown group",
            NotFound,
            scene.csi.group.get_volume_group_snapshot(unknown).await,
        );
    });
}
