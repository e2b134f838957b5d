//! Probes of the identity service and of capabilities.

use csi_proto::v1;
use tonic::Code;

use super::{Chapter, probe};
use crate::scene::{Scene, code};
use crate::world::World;

pub(super) const PROBES: Chapter = &[
    probe!("wrong-plugin-name", name_is_a_domain),
    probe!("plugin-name-changes", name_is_stable),
    probe!("capability-without-call", reported_calls_are_answered),
    probe!("capabilities-flap", capabilities_are_stable),
    probe!("never-ready", probe_is_ready),
    probe!("node-id-changes", node_id_is_stable),
    probe!("topology-missing", topology_is_answered),
    probe!("probe-missing", probe_is_implemented),
    probe!("topology-malformed", topology_has_its_form),
];

async fn name_is_a_domain(mut world: World) -> bool {
    let mut csi = world.start(&[]).await;
    let request = v1::GetPluginInfoRequest {};
    let name = csi.identity.get_plugin_info(request).await.unwrap().into_inner().name;
    let is_label = |label: &str| {
        !label.is_empty() && label.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '-')
    };
    name.len() <= 63 && name.split('.').all(is_label)
}

async fn name_is_stable(mut world: World) -> bool {
    let mut csi = world.start(&[]).await;
    let one = csi.identity.get_plugin_info(v1::GetPluginInfoRequest {}).await.unwrap().into_inner().name;
    let other = csi.identity.get_plugin_info(v1::GetPluginInfoRequest {}).await.unwrap().into_inner().name;
    one == other
}

async fn reported_calls_are_answered(world: World) -> bool {
    let mut scene = Scene::block(world).await.published().await;
    let request = v1::NodeExpandVolumeRequest {
        volume_id: scene.id.clone(),
        volume_path: scene.target.to_string_lossy().into_owned(),
        ..Default::default()
    };
    code(&scene.csi.node.node_expand_volume(request).await) != Code::Unimplemented
}

async fn capabilities_are_stable(mut world: World) -> bool {
    let mut csi = world.start(&[]).await;
    let mut seen = Vec::new();
    for _ in 0..3 {
        let request = v1::NodeGetCapabilitiesRequest {};
        seen.push(csi.node.node_get_capabilities(request).await.unwrap().into_inner());
    }
    seen.windows(2).all(|pair| pair[0] == pair[1])
}

async fn probe_is_ready(mut world: World) -> bool {
    let mut csi = world.start(&[]).await;
    csi.identity.probe(v1::ProbeRequest {}).await.unwrap().into_inner().ready != Some(false)
}

async fn node_id_is_stable(mut world: World) -> bool {
    let mut csi = world.start(&[]).await;
    let one = csi.node.node_get_info(v1::NodeGetInfoRequest {}).await.unwrap().into_inner().node_id;
    let other = csi.node.node_get_info(v1::NodeGetInfoRequest {}).await.unwrap().into_inner().node_id;
    one == other && !one.is_empty() && one.len() <= 256
}

async fn topology_is_answered(mut world: World) -> bool {
    let mut csi = world.start(&[]).await;
    let info = csi.node.node_get_info(v1::NodeGetInfoRequest {}).await.unwrap().into_inner();
    info.accessible_topology.is_some_and(|topology| !topology.segments.is_empty())
}

async fn probe_is_implemented(mut world: World) -> bool {
    let mut csi = world.start(&[]).await;
    code(&csi.identity.probe(v1::ProbeRequest {}).await) != Code::Unimplemented
}

async fn topology_has_its_form(mut world: World) -> bool {
    let mut csi = world.start(&[]).await;
    let info = csi.node.node_get_info(v1::NodeGetInfoRequest {}).await.unwrap().into_inner();
    let is_name =
        |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    info.accessible_topology.is_some_and(|topology| topology.segments.values().all(|value| is_name(value)))
}
