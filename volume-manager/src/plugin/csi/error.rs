//! Errors between an operation and a CSI driver, and their classes.

use std::path::PathBuf;

use api::ApiError;
use api::error::ErrorClass;
use api::names::{DriverName, SpecName, VolumeHandle};
use api::storage::LifecycleMode;
use host::HostError;
use plugin_api::error::{Classified, Sign};

use super::attachment::AttachmentError;
use super::secret::SecretError;
use super::status::CallError;
use super::volume_data::VolumeDataError;

/// Why an operation on a CSI volume failed.
#[derive(Debug, thiserror::Error)]
pub enum CsiError {
    /// The driver is not registered on this node.
    #[error("{step}")]
    NoDriver {
        /// The kubelet's words for the failed step.
        step: &'static str,
        source: NotRegistered,
    },
    /// The same, where the kubelet has no words for the step.
    #[error(transparent)]
    NoDriverAtAll(NotRegistered),
    /// The capability probe failed; no call with an effect was made.
    #[error("{step}")]
    Probe {
        /// The kubelet's words for the failed probe.
        step: &'static str,
        source: CallError,
    },
    /// The same, where the kubelet has no words for the probe.
    #[error(transparent)]
    ProbeAlone(CallError),
    /// The main call failed.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The volume is not attached, or its attachment cannot be read.
    #[error(transparent)]
    Attachment(Box<AttachmentError>),
    /// A secret cannot be read.
    #[error(transparent)]
    Secret(Box<SecretError>),
    /// The driver wants service account tokens, and the API returned none.
    #[error("kubernetes.io/csi: mounter.SetUpAt failed to get service account token attributes")]
    Token(#[source] Box<ApiError>),
    /// The CSIDriver objects have not been listed yet, and the operation depends on one.
    #[error("the CSIDriver objects are not known yet")]
    DriversUnknown,
    /// The driver's object does not allow this lifecycle.
    #[error("volume mode \"{mode:?}\" not supported by driver {driver} ({reason})")]
    Lifecycle {
        /// The lifecycle of the volume.
        mode: LifecycleMode,
        driver: DriverName,
        /// The lifecycles that the driver's object allows.
        reason: String,
    },
    /// The driver's object has no fsGroupPolicy, which an API server always sets.
    #[error("CSIDriver {0} has no fsGroupPolicy")]
    NoFsGroupPolicy(DriverName),
    /// A name that cannot be a directory's, or an empty handle.
    #[error("volume `{volume}` has an impossible {what}")]
    BadName {
        volume: SpecName,
        /// The kind of name.
        what: &'static str,
    },
    /// Another file has the name of a directory that the driver needs.
    #[error("path {} exists but is not a directory", .0.display())]
    NotADirectory(PathBuf),
    /// A directory could not be created or removed, or the record in it not be written.
    #[error("kubernetes.io/csi: {step}")]
    Directory {
        /// The kubelet's words for the failed step.
        step: &'static str,
        source: HostError,
    },
    /// The volume's record cannot be used.
    #[error("unmounter failed to load volume data file")]
    Data(#[from] VolumeDataError),
    /// The volume is published, but its files could not be given to the pod's group.
    #[error("applyFSGroup failed for vol {handle}")]
    Ownership { handle: VolumeHandle, source: HostError },
    /// The volume is published, but its mount options could not be read to see whether it supports labels.
    #[error("kubernetes.io/csi: mounter.SetUpAt failed to detect SELinux support")]
    SelinuxUnknown(#[source] HostError),
    /// The driver does not expand volumes on the node.
    #[error("NodeExpand is not supported by the CSI driver {0}")]
    ExpandNotSupported(DriverName),
    /// A size or path that cannot be sent.
    #[error("cannot expand volume `{volume}`: {reason}")]
    BadExpand {
        volume: SpecName,
        /// The defect.
        reason: &'static str,
    },
    /// The expansion failed. Formatted as in the kubelet: with ` : ` before the driver's message, and with a
    /// blank only if the size is infeasible.
    #[error("Expander.NodeExpand failed to expand the volume {}", after_the_words(.0))]
    Expand(CallError),
    /// The driver has no GET_VOLUME_STATS.
    #[error("driver {0} does not report volume statistics")]
    StatsNotSupported(DriverName),
    /// The driver returned no usage of the volume.
    #[error("driver {0} reported no usage")]
    NoUsage(DriverName),
    /// Attaching and detaching are for the attach/detach controller only.
    #[error("{0} volumes from the kubelet is not supported")]
    NotFromNode(&'static str),
}

impl From<AttachmentError> for CsiError {
    fn from(error: AttachmentError) -> Self {
        Self::Attachment(Box::new(error))
    }
}

impl From<SecretError> for CsiError {
    fn from(error: SecretError) -> Self {
        Self::Secret(Box::new(error))
    }
}

impl Classified for CsiError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::NoDriver { .. }
            | Self::NoDriverAtAll(_)
            | Self::Probe { .. }
            | Self::ProbeAlone(_)
            | Self::Attachment(_)
            | Self::Secret(_)
            | Self::Token(_)
            | Self::DriversUnknown
            | Self::Lifecycle { .. }
            | Self::NoFsGroupPolicy(_)
            | Self::NotFromNode(_) => ErrorClass::Transient,
            Self::Call(error) | Self::Expand(error) if error.is_final() => ErrorClass::Final,
            // The volume is published, or the call may have had its effect.
            Self::Call(_) | Self::Expand(_) | Self::Ownership { .. } | Self::SelinuxUnknown(_) => {
                ErrorClass::Uncertain
            }
            Self::BadName { .. }
            | Self::NotADirectory(_)
            | Self::Directory { .. }
            | Self::Data(_)
            | Self::ExpandNotSupported(_)
            | Self::BadExpand { .. }
            | Self::StatsNotSupported(_)
            | Self::NoUsage(_) => ErrorClass::Final,
        }
    }

    fn sign(&self) -> Option<Sign> {
        use tonic::Code;
        match self {
            Self::ExpandNotSupported(_) => Some(Sign::NotSupported),
            Self::Expand(error) => match error.code() {
                Code::FailedPrecondition => Some(Sign::InUse),
                _ => is_infeasible(error).then_some(Sign::Infeasible),
            },
            _ => None,
        }
    }
}

fn after_the_words(error: &CallError) -> String {
    if is_infeasible(error) { error.to_string() } else { format!(": {error}") }
}

/// Whether the driver's answer means that the volume can never have the size.
fn is_infeasible(error: &CallError) -> bool {
    use tonic::Code;
    matches!(error.code(), Code::InvalidArgument | Code::OutOfRange | Code::NotFound)
}

/// No driver of that name is registered at present; it may register later.
#[derive(Debug, thiserror::Error)]
#[error("driver name {0} not found in the list of registered CSI drivers")]
pub struct NotRegistered(pub(crate) DriverName);
