//! Probes of creating, deleting, listing and attaching volumes.

use std::collections::BTreeSet;

use csi_proto::v1;
use csi_proto::v1::volume_capability::access_mode::Mode;
use csi_proto::v1::volume_content_source::{Type, VolumeSource};
use tonic::{Code, Status};

use super::{Chapter, probe};
use crate::scene::{Scene, WRITER, code};
use crate::world::{Csi, World, block, create, mounted};

pub(super) const PROBES: Chapter = &[
    probe!("create-forgets-idempotence", repeated_create_is_the_same),
    probe!("create-ignores-conflict", other_size_is_a_conflict),
    probe!("create-too-small", volume_is_as_large_as_requested),
    probe!("create-reports-wrong-size", volume_has_the_answered_size),
    probe!("clone-is-empty", copy_has_the_data),
    probe!("copy-keeps-small-file-system", larger_copy_fills_its_device),
    probe!("create-accepts-anything", unsupported_capability_is_refused),
    probe!("create-refuses-long-names", long_name_is_accepted),
    probe!("create-trusts-names", name_is_no_path),
    probe!("delete-trusts-ids", id_is_no_path),
    probe!("create-ignores-topology", unknown_zone_is_refused),
    probe!("delete-forgets-idempotence", repeated_delete_is_ok),
    probe!("delete-while-in-use", volume_in_use_is_not_deleted),
    probe!("delete-leaves-image", delete_removes_the_image),
    probe!("validate-confirms-anything", only_supported_capabilities_are_confirmed),
    probe!("list-loses-a-volume", pages_list_all_volumes),
    probe!("list-repeats-token", pages_list_all_volumes),
    probe!("list-accepts-any-token", unknown_token_is_refused),
    probe!("capacity-never-shrinks", volume_reduces_capacity),
    probe!("capability-without-mode", capability_has_a_mode),
    probe!("create-needs-size", size_is_optional),
    probe!("create-drops-parameters", unknown_parameter_is_refused),
    probe!("validate-confirms-nothing", own_capability_is_confirmed),
    probe!("attach-forgets-idempotence", repeated_attach_is_the_same),
    probe!("stale-publish-context", publish_context_is_current),
    probe!("attach-to-many-nodes", single_node_volume_has_one_node),
    probe!("attach-to-unknown-node", unknown_node_is_refused),
    probe!("detach-forgets-idempotence", repeated_detach_is_ok),
    probe!("attach-beyond-limit", volume_limit_is_enforced),
];

async fn made(csi: &mut Csi, request: v1::CreateVolumeRequest) -> Result<v1::Volume, Status> {
    csi.controller.create_volume(request).await.map(|made| made.into_inner().volume.unwrap())
}

async fn repeated_create_is_the_same(mut world: World) -> bool {
    let mut csi = world.start(&[]).await;
    let request = create("data", mounted("", WRITER));
    made(&mut csi, request.clone()).await.unwrap() == made(&mut csi, request).await.unwrap()
}

async fn other_size_is_a_conflict(mut world: World) -> bool {
    let mut csi = world.start(&[]).await;
    let mut request = create("data", mounted("", WRITER));
    made(&mut csi, request.clone()).await.unwrap();
    request.capacity_range = Some(v1::CapacityRange { required_bytes: 64 << 20, limit_bytes: 0 });
    code(&made(&mut csi, request).await) == Code::AlreadyExists
}

async fn volume_is_as_large_as_requested(mut world: World) -> bool {
    let mut csi = world.start(&[]).await;
    csi.create("data", mounted("", WRITER)).await.capacity_bytes >= 16 << 20
}

async fn volume_has_the_answered_size(world: World) -> bool {
    use std::io::Seek as _;
    let mut scene = Scene::block(world).await.published().await;
    let reported = scene.csi.create("data", block(WRITER)).await.capacity_bytes;
    let mut device = std::fs::File::open(&scene.target).unwrap();
    device.seek(std::io::SeekFrom::End(0)).unwrap() == u64::try_from(reported).unwrap()
}

fn copy_of(id: &str, capability: v1::VolumeCapability) -> v1::CreateVolumeRequest {
    let kind = Type::Volume(VolumeSource { volume_id: id.to_owned() });
    let source = v1::VolumeContentSource { r#type: Some(kind) };
    v1::CreateVolumeRequest { volume_content_source: Some(source), ..create("copy", capability) }
}

async fn copy_has_the_data(world: World) -> bool {
    let mut scene = Scene::mount(world).await.published().await;
    std::fs::write(scene.target.join("x"), "kept").unwrap();
    let copy = made(&mut scene.csi, copy_of(&scene.id, scene.capability.clone())).await.unwrap();
    let path = scene.world.directory("copy");
    // Staging an empty copy already fails.
    let staged = scene.csi.stage(&copy.volume_id, &path, scene.capability.clone()).await;
    staged.is_ok() && std::fs::read_to_string(path.join("x")).is_ok_and(|text| text == "kept")
}

async fn larger_copy_fills_its_device(world: World) -> bool {
    let mut scene = Scene::mount(world).await.staged().await;
    let mut request = copy_of(&scene.id, scene.capability.clone());
    request.capacity_range = Some(v1::CapacityRange { required_bytes: 64 << 20, limit_bytes: 0 });
    let copy = made(&mut scene.csi, request).await.unwrap();
    let path = scene.world.directory("copy");
    scene.csi.stage(&copy.volume_id, &path, scene.capability.clone()).await.unwrap();
    let found = nix::sys::statvfs::statvfs(&path).unwrap();
    found.blocks() * found.fragment_size() > 48 << 20
}

async fn unsupported_capability_is_refused(mut world: World) -> bool {
    let mut csi = world.start(&[]).await;
    let many = create("data", mounted("ext4", Mode::MultiNodeMultiWriter));
    let many = v1::CreateVolumeRequest { parameters: [("backing".into(), "loop".into())].into(), ..many };
    code(&made(&mut csi, many).await) == Code::InvalidArgument
}

async fn long_name_is_accepted(mut world: World) -> bool {
    let mut csi = world.start(&[]).await;
    let longest = made(&mut csi, create(&"n".repeat(128), mounted("", WRITER))).await;
    let longer = made(&mut csi, create(&"n".repeat(129), mounted("", WRITER))).await;
    longest.is_ok() && code(&longer) == Code::InvalidArgument
}

async fn name_is_no_path(mut world: World) -> bool {
    let mut csi = world.start(&[]).await;
    drop(made(&mut csi, create("../../escaped", mounted("", WRITER))).await);
    !world.root.join("escaped.json").exists()
}

async fn id_is_no_path(mut world: World) -> bool {
    let mut csi = world.start(&[]).await;
    let kept = world.root.join("kept");
    std::fs::create_dir(&kept).unwrap();
    let request = v1::DeleteVolumeRequest { volume_id: "../../kept".to_owned(), ..Default::default() };
    csi.controller.delete_volume(request).await.unwrap();
    kept.exists()
}

async fn capability_has_a_mode(mut world: World) -> bool {
    let mut csi = world.start(&[]).await;
    let capability = v1::VolumeCapability { access_mode: None, ..mounted("", WRITER) };
    code(&made(&mut csi, create("data", capability)).await) == Code::InvalidArgument
}

async fn size_is_optional(mut world: World) -> bool {
    let mut csi = world.start(&[]).await;
    let request = v1::CreateVolumeRequest { capacity_range: None, ..create("data", mounted("", WRITER)) };
    made(&mut csi, request).await.is_ok()
}

async fn unknown_parameter_is_refused(mut world: World) -> bool {
    let mut csi = world.start(&[]).await;
    let mutable_parameters = [("no-such-parameter".to_owned(), "yes".to_owned())].into();
    let request = v1::CreateVolumeRequest { mutable_parameters, ..create("data", mounted("", WRITER)) };
    made(&mut csi, request).await.is_err()
}

async fn own_capability_is_confirmed(mut world: World) -> bool {
    let mut csi = world.start(&[]).await;
    let volume = csi.create("data", mounted("", WRITER)).await;
    let request = v1::ValidateVolumeCapabilitiesRequest {
        volume_id: volume.volume_id,
        volume_capabilities: vec![mounted("", WRITER)],
        ..Default::default()
    };
    csi.controller.validate_volume_capabilities(request).await.unwrap().into_inner().confirmed.is_some()
}

async fn unknown_zone_is_refused(mut world: World) -> bool {
    let mut csi = world.start(&[]).await;
    let nowhere = v1::Topology {
        segments: [("topology.fake.csi.volproof.dev/zone".to_owned(), "moon".to_owned())].into(),
    };
    let requirement = v1::TopologyRequirement { requisite: vec![nowhere.clone()], preferred: vec![nowhere] };
    let request = v1::CreateVolumeRequest {
        accessibility_requirements: Some(requirement),
        ..create("data", mounted("", WRITER))
    };
    code(&made(&mut csi, request).await) == Code::ResourceExhausted
}

async fn repeated_delete_is_ok(world: World) -> bool {
    let mut scene = Scene::mount(world).await;
    scene.csi.delete(&scene.id).await.unwrap();
    scene.csi.delete(&scene.id).await.is_ok() && scene.csi.delete("never-was").await.is_ok()
}

async fn volume_in_use_is_not_deleted(world: World) -> bool {
    let mut scene = Scene::mount(world).await.published().await;
    let id = scene.id.clone();
    code(&scene.csi.delete(&id).await) == Code::FailedPrecondition
}

async fn delete_removes_the_image(world: World) -> bool {
    let mut scene = Scene::mount(world).await;
    let id = scene.id.clone();
    scene.csi.delete(&id).await.unwrap();
    std::fs::read_dir(scene.world.state().join("volumes")).unwrap().count() == 0
}

async fn only_supported_capabilities_are_confirmed(world: World) -> bool {
    let mut scene = Scene::mount(world).await;
    let mut confirmed = async |capability| {
        let request = v1::ValidateVolumeCapabilitiesRequest {
            volume_id: scene.id.clone(),
            volume_capabilities: vec![capability],
            ..Default::default()
        };
        let answer = scene.csi.controller.validate_volume_capabilities(request).await.unwrap();
        answer.into_inner().confirmed.is_some()
    };
    confirmed(mounted("ext4", WRITER)).await && !confirmed(mounted("ext4", Mode::MultiNodeMultiWriter)).await
}

async fn pages_list_all_volumes(mut world: World) -> bool {
    let mut csi = world.start(&[]).await;
    let mut all = BTreeSet::new();
    for number in 0..5 {
        all.insert(csi.create(&format!("data-{number}"), mounted("", WRITER)).await.volume_id);
    }
    let (mut listed, mut token) = (Vec::new(), String::new());
    loop {
        let request = v1::ListVolumesRequest { max_entries: 2, starting_token: token.clone() };
        let page = csi.controller.list_volumes(request).await.unwrap().into_inner();
        listed.extend(page.entries.into_iter().map(|entry| entry.volume.unwrap().volume_id));
        if token == page.next_token {
            return false;
        }
        token = page.next_token;
        if token.is_empty() {
            return listed.len() == 5 && listed.into_iter().collect::<BTreeSet<_>>() == all;
        }
    }
}

async fn unknown_token_is_refused(mut world: World) -> bool {
    let mut csi = world.start(&[]).await;
    let mut refused = async |token: &str| {
        let request = v1::ListVolumesRequest { max_entries: 0, starting_token: token.to_owned() };
        code(&csi.controller.list_volumes(request).await) == Code::Aborted
    };
    refused("invalid-token").await && refused("99999").await
}

async fn volume_reduces_capacity(mut world: World) -> bool {
    let mut csi = world.start(&[]).await;
    let request = v1::GetCapacityRequest::default();
    let before = csi.controller.get_capacity(request.clone()).await.unwrap().into_inner().available_capacity;
    let volume = csi.create("data", mounted("", WRITER)).await;
    let after = csi.controller.get_capacity(request).await.unwrap().into_inner().available_capacity;
    before - after == volume.capacity_bytes
}

fn attach_request(id: &str, node: &str) -> v1::ControllerPublishVolumeRequest {
    v1::ControllerPublishVolumeRequest {
        volume_id: id.to_owned(),
        node_id: node.to_owned(),
        volume_capability: Some(mounted("", WRITER)),
        ..Default::default()
    }
}

async fn repeated_attach_is_the_same(world: World) -> bool {
    let mut scene = Scene::mount(world).await;
    let request = attach_request(&scene.id, "node-1");
    let one = scene.csi.controller.controller_publish_volume(request.clone()).await.unwrap().into_inner();
    let other = scene.csi.controller.controller_publish_volume(request).await.unwrap().into_inner();
    one == other
}

async fn publish_context_is_current(world: World) -> bool {
    let mut scene = Scene::mount(world).await;
    let request = attach_request(&scene.id, "node-1");
    let answer = scene.csi.controller.controller_publish_volume(request).await.unwrap().into_inner();
    let request = v1::NodeStageVolumeRequest {
        publish_context: answer.publish_context,
        ..crate::world::stage(&scene.id, &scene.staging, scene.capability.clone())
    };
    scene.csi.node.node_stage_volume(request).await.is_ok()
}

/// Arguments for a second node with a socket of its own in the same process.
fn two_nodes(world: &World) -> Vec<String> {
    let second = format!("--endpoint=unix://{}", world.root.join("second.sock").display());
    vec!["--node=node-1".into(), "--node=node-2".into(), second]
}

async fn single_node_volume_has_one_node(mut world: World) -> bool {
    let arguments = two_nodes(&world);
    let mut csi = world.start(&arguments.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let id = csi.create("data", mounted("", WRITER)).await.volume_id;
    csi.controller.controller_publish_volume(attach_request(&id, "node-1")).await.unwrap();
    let second = csi.controller.controller_publish_volume(attach_request(&id, "node-2")).await;
    code(&second) == Code::FailedPrecondition
}

async fn unknown_node_is_refused(world: World) -> bool {
    let mut scene = Scene::mount(world).await;
    let request = attach_request(&scene.id, "nobody");
    code(&scene.csi.controller.controller_publish_volume(request).await) == Code::NotFound
}

async fn repeated_detach_is_ok(world: World) -> bool {
    let mut scene = Scene::mount(world).await;
    let request = v1::ControllerUnpublishVolumeRequest {
        volume_id: scene.id.clone(),
        node_id: "node-1".to_owned(),
        ..Default::default()
    };
    scene.csi.controller.controller_unpublish_volume(request).await.is_ok()
}

async fn volume_limit_is_enforced(mut world: World) -> bool {
    let mut csi = world.start(&["--max-volumes=1"]).await;
    let one = csi.create("one", mounted("", WRITER)).await.volume_id;
    let other = csi.create("other", mounted("", WRITER)).await.volume_id;
    csi.controller.controller_publish_volume(attach_request(&one, "node-1")).await.unwrap();
    let refused = csi.controller.controller_publish_volume(attach_request(&other, "node-1")).await;
    code(&refused) == Code::ResourceExhausted
}
