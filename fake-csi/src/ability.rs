//! Abilities that the driver reports. `--without NAME` switches one off.

use csi_proto::v1::controller_service_capability::rpc::Type as ControllerType;
use csi_proto::v1::node_service_capability::rpc::Type as NodeType;

/// A capability of the specification, or a set that makes sense only together.
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
    /// VOLUME_CONDITION of controller and node.
    Condition,
    /// SINGLE_NODE_MULTI_WRITER of controller and node.
    SingleNodeMultiWriter,
    Topology,
    GroupSnapshot,
    SnapshotMetadata,
    /// Answers the capacity of a volume; without it the capacity is 0, which means unknown.
    ToldCapacity,
    OnlineExpansion,
    /// Takes the type of a file system; without it a request that names one is refused.
    FsTypes,
}

impl Ability {
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
