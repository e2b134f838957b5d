//! `--without`: an ability that is switched off is not reported, and its calls are UNIMPLEMENTED.

use std::collections::BTreeSet;

use clap::ValueEnum as _;
use csi_proto::v1;
use fake_csi::Ability;
use serial_test::file_serial;
use tonic::Code;

use crate::scene::code;
use crate::world::{Csi, in_namespace};

/// The capabilities of the three services, as text.
async fn reported(csi: &mut Csi) -> BTreeSet<String> {
    let plugin = csi.identity.get_plugin_capabilities(v1::GetPluginCapabilitiesRequest {}).await.unwrap();
    let controller = v1::ControllerGetCapabilitiesRequest {};
    let controller = csi.controller.controller_get_capabilities(controller).await.unwrap();
    let node = csi.node.node_get_capabilities(v1::NodeGetCapabilitiesRequest {}).await.unwrap();
    let plugin = plugin.into_inner().capabilities.into_iter().map(|capability| format!("{capability:?}"));
    let controller = controller.into_inner().capabilities.into_iter();
    let controller = controller.map(|capability| format!("controller {capability:?}"));
    let node = node.into_inner().capabilities.into_iter().map(|capability| format!("node {capability:?}"));
    plugin.chain(controller).chain(node).collect()
}

#[test]
#[file_serial(root)]
fn only_a_switched_off_ability_is_missing_from_the_report() {
    in_namespace(async |mut world| {
        let all = reported(&mut world.start(&[]).await).await;
        for ability in Ability::value_variants() {
            let name = ability.to_possible_value().unwrap().get_name().to_owned();
            let fewer = reported(&mut world.start(&["--without", &name]).await).await;
            let missing = all.difference(&fewer).count();
            let expected = match ability {
                // Reported by controller and node.
                Ability::Condition | Ability::SingleNodeMultiWriter => 2,
                // With it goes the list of published nodes.
                Ability::PublishUnpublish => 2,
                // With it goes the condition, of controller and node.
                Ability::VolumeStats => 3,
                // With it goes online expansion.
                Ability::NodeExpand => 2,
                // Shows in answers, not in a report.
                Ability::ToldCapacity | Ability::FsTypes => 0,
                _ => 1,
            };
            assert_eq!(missing, expected, "without {name}");
            // Without online expansion the driver reports offline expansion instead.
            let is_offline = matches!(ability, Ability::OnlineExpansion | Ability::NodeExpand);
            let added = fewer.difference(&all).count();
            assert_eq!(added, usize::from(is_offline), "without {name}");
        }
    });
}

#[test]
#[file_serial(root)]
fn call_of_a_switched_off_ability_is_unimplemented() {
    in_namespace(async |mut world| {
        let names: Vec<String> = Ability::value_variants()
            .iter()
            .map(|ability| format!("--without={}", ability.to_possible_value().unwrap().get_name()))
            .collect();
        let mut csi = world.start(&names.iter().map(String::as_str).collect::<Vec<_>>()).await;
        let codes = [
            code(&csi.controller.create_volume(v1::CreateVolumeRequest::default()).await),
            code(&csi.controller.delete_volume(v1::DeleteVolumeRequest::default()).await),
            code(
                &csi.controller
                    .controller_publish_volume(v1::ControllerPublishVolumeRequest::default())
                    .await,
            ),
            code(
                &csi.controller
                    .controller_unpublish_volume(v1::ControllerUnpublishVolumeRequest::default())
                    .await,
            ),
            code(&csi.controller.list_volumes(v1::ListVolumesRequest::default()).await),
            code(&csi.controller.get_capacity(v1::GetCapacityRequest::default()).await),
            code(&csi.controller.create_snapshot(v1::CreateSnapshotRequest::default()).await),
            code(&csi.controller.delete_snapshot(v1::DeleteSnapshotRequest::default()).await),
            code(&csi.controller.list_snapshots(v1::ListSnapshotsRequest::default()).await),
            code(&csi.controller.get_snapshot(v1::GetSnapshotRequest::default()).await),
            code(
                &csi.controller.controller_expand_volume(v1::ControllerExpandVolumeRequest::default()).await,
            ),
            code(&csi.controller.controller_get_volume(v1::ControllerGetVolumeRequest::default()).await),
            code(
                &csi.controller.controller_modify_volume(v1::ControllerModifyVolumeRequest::default()).await,
            ),
            code(&csi.node.node_stage_volume(v1::NodeStageVolumeRequest::default()).await),
            code(&csi.node.node_unstage_volume(v1::NodeUnstageVolumeRequest::default()).await),
            code(&csi.node.node_get_volume_stats(v1::NodeGetVolumeStatsRequest::default()).await),
            code(&csi.node.node_expand_volume(v1::NodeExpandVolumeRequest::default()).await),
            code(
                &csi.group
                    .create_volume_group_snapshot(v1::CreateVolumeGroupSnapshotRequest::default())
                    .await,
            ),
        ];
        assert_eq!(codes, [Code::Unimplemented; 18]);
    });
}
