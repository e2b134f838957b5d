//! What the driver says it can do. Each is a switch: `--without NAME` takes it away.

use csi_proto::v1::controller_service_capability::rpc::Type as ControllerType;
use csi_proto::v1::node_service_capability::rpc::Type as NodeType;

/// One ability, or a set that only makes sense together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Ability {
    CreateDeleteVolume,
    PublishUnpublish,
    ListVolumes,
    GetCapacity,
    CreateDeleteSnapshot,
    ListSnapshots,
    GetSnapshot,
    Clone,
    PublishReadonly,
    ControllerExpand,
    PublishedNodes,
    GetVolume,
    ModifyVolume,
    StageUnstage,
    VolumeStats,
    NodeExpand,
    VolumeMountGroup,
    /// Of the controller and of the node.
    Condition,
    /// Of the controller and of the node.
    SingleNodeMultiWriter,
    Topology,
    GroupSnapshot,
    SnapshotMetadata,
    OnlineExpansion,
}

impl Ability {
    /// What it is called in `ControllerGetCapabilities`, if it is there.
    pub(crate) fn of_controller(self) -> Option<ControllerType> {
        Some(match self {
            Self::CreateDeleteVolume => ControllerType::CreateDeleteVolume,
            Self::PublishUnpublish => ControllerType::PublishUnpublishVolume,
            Self::ListVolumes => ControllerType::ListVolumes,
            Self::GetCapacity => ControllerType::GetCapacity,
            Self::CreateDeleteSnapshot => ControllerType::CreateDeleteSnapshot,
            Self::ListSnapshots => ControllerType::ListSnapshots,
            Self::GetSnapshot => ControllerType::GetSnapshot,
            Self::Clone => ControllerType::CloneVolume,
            Self::PublishReadonly => ControllerType::PublishReadonly,
            Self::ControllerExpand => ControllerType::ExpandVolume,
            Self::PublishedNodes => ControllerType::ListVolumesPublishedNodes,
            Self::GetVolume => ControllerType::GetVolume,
            Self::ModifyVolume => ControllerType::ModifyVolume,
            Self::Condition => ControllerType::VolumeCondition,
            Self::SingleNodeMultiWriter => ControllerType::SingleNodeMultiWriter,
            _ => return None,
        })
    }

    /// What it is called in `NodeGetCapabilities`, if it is there.
    pub(crate) fn of_node(self) -> Option<NodeType> {
        Some(match self {
            Self::StageUnstage => NodeType::StageUnstageVolume,
            Self::VolumeStats => NodeType::GetVolumeStats,
            Self::NodeExpand => NodeType::ExpandVolume,
            Self::VolumeMountGroup => NodeType::VolumeMountGroup,
            Self::Condition => NodeType::VolumeCondition,
            Self::SingleNodeMultiWriter => NodeType::SingleNodeMultiWriter,
            _ => return None,
        })
    }
}
