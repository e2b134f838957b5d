//! What can go wrong between an operation and a CSI driver, and its class.

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

/// Why a step of a CSI volume failed.
#[derive(Debug, thiserror::Error)]
pub enum CsiError {
    /// The driver cannot be reached on this node.
    #[error("{step}")]
    NoDriver {
        /// What was begun, in the kubelet's words.
        step: &'static str,
        /// Who is missing.
        source: NotRegistered,
    },
    /// The same, where the kubelet does not say what was begun.
    #[error(transparent)]
    NoDriverAtAll(NotRegistered),
    /// The driver did not say what it can do. Nothing was asked of it yet.
    #[error("{step}")]
    Probe {
        /// What it was to say, in the kubelet's words.
        step: &'static str,
        /// What came instead.
        source: CallError,
    },
    /// The same, where the kubelet does not say what it was to say.
    #[error(transparent)]
    ProbeAlone(CallError),
    /// The call that does the work failed.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The volume is not attached, or nobody can tell.
    #[error(transparent)]
    Attachment(Box<AttachmentError>),
    /// A secret is missing.
    #[error(transparent)]
    Secret(Box<SecretError>),
    /// The driver wants tokens, and there are none to be had.
    #[error("kubernetes.io/csi: mounter.SetUpAt failed to get service account token attributes")]
    Token(#[source] Box<ApiError>),
    /// The CSIDriver objects have not been seen yet, and a decision hangs on one.
    #[error("the CSIDriver objects are not known yet")]
    DriversUnknown,
    /// The driver's object does not permit volumes that live as long as this one.
    #[error("volume mode \"{mode:?}\" not supported by driver {driver} ({reason})")]
    Lifecycle {
        /// How long the volume lives.
        mode: LifecycleMode,
        driver: DriverName,
        /// What its object says.
        reason: String,
    },
    /// The driver's object lacks what every served one has.
    #[error("CSIDriver {0} has no fsGroupPolicy")]
    NoFsGroupPolicy(DriverName),
    /// A name that would lead out of its directory, or an empty one.
    #[error("volume `{volume}` has an impossible {what}")]
    BadName {
        volume: SpecName,
        /// Which of its names.
        what: &'static str,
    },
    /// A directory the driver needs is something else.
    #[error("path {} exists but is not a directory", .0.display())]
    NotADirectory(PathBuf),
    /// A directory could not be made, or not be taken away.
    #[error("kubernetes.io/csi: {step}")]
    Directory {
        /// Which.
        step: &'static str,
        /// What the kernel said.
        source: HostError,
    },
    /// What a volume's directory says about it cannot be used.
    #[error("unmounter failed to load volume data file")]
    Data(#[from] VolumeDataError),
    /// The volume is published, and its files could not be given to the pod's group.
    #[error("applyFSGroup failed for vol {handle}")]
    Ownership {
        /// The volume.
        handle: VolumeHandle,
        /// What the kernel said.
        source: HostError,
    },
    /// The volume is published, and nobody can tell whether it has labels.
    #[error("kubernetes.io/csi: mounter.SetUpAt failed to detect SELinux support")]
    SelinuxUnknown(#[source] HostError),
    /// The driver does not grow volumes on the node.
    #[error("NodeExpand is not supported by the CSI driver {0}")]
    ExpandNotSupported(DriverName),
    /// A size or a path that no call may carry.
    #[error("cannot expand volume `{volume}`: {reason}")]
    BadExpand {
        volume: SpecName,
        /// What is wrong.
        reason: &'static str,
    },
    /// Growing failed. As the kubelet writes it: with ` : ` before the driver's answer, and a blank where the size can
    /// never be had.
    #[error("Expander.NodeExpand failed to expand the volume {}", after_the_words(.0))]
    Expand(CallError),
    /// The driver tells nothing about volumes.
    #[error("driver {0} does not report volume statistics")]
    StatsNotSupported(DriverName),
    /// The driver told nothing about this volume.
    #[error("driver {0} reported no usage")]
    NoUsage(DriverName),
    /// The node cannot attach: only its controller can.
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
            // Done in part, or nobody knows how much of it.
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

/// Whether a driver's answer says that a volume can never have the size.
fn is_infeasible(error: &CallError) -> bool {
    use tonic::Code;
    matches!(error.code(), Code::InvalidArgument | Code::OutOfRange | Code::NotFound)
}

/// No driver of that name is registered now. It may be later: nothing has changed by asking.
#[derive(Debug, thiserror::Error)]
#[error("driver name {0} not found in the list of registered CSI drivers")]
pub struct NotRegistered(pub(crate) DriverName);
