//! The messages between a node's process and its handle. Touches nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use api::Sensitive;
use oci_spec::runtime::Spec;
use serde::{Deserialize, Serialize};
use volume_manager::ClientStyle;
use volume_manager::Dump;
use volume_manager::{MountedVolume, Notice};

use super::{NodeOptions, Wanted};

/// The settings of a node's process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Settings {
    pub(super) root: String,
    pub(super) state: String,
    /// The roots of other nodes on the same kernel.
    pub(super) other_roots: Vec<PathBuf>,
    pub(super) name: String,
    pub(super) client_style: ClientStyle,
    pub(super) status_period: Duration,
    pub(super) call_deadline: Duration,
    pub(super) sweep: bool,
    pub(super) prompt_status: bool,
    pub(super) resync: bool,
    pub(super) measure: bool,
    pub(super) keep_tokens: bool,
    pub(super) pod_events: bool,
}

impl Settings {
    pub(super) fn of(options: &NodeOptions) -> Self {
        Self {
            root: options.layout.root().to_string_lossy().into_owned(),
            state: options.layout.state().to_string_lossy().into_owned(),
            other_roots: options.layout.other_roots().to_vec(),
            name: options.name.clone(),
            client_style: options.client_style,
            status_period: options.status_period,
            call_deadline: options.call_deadline,
            sweep: options.sweep,
            prompt_status: options.prompt_status,
            resync: options.resync,
            measure: options.measure,
            keep_tokens: options.keep_tokens,
            pod_events: options.pod_events,
        }
    }
}

/// A message of the handle to the node's process.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Ordered {
    /// Pairs it with its answer.
    pub(super) id: u64,
    pub(super) order: Order,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Order {
    /// Begin; the containers of these pods (by uid) are gone.
    Start {
        gone: BTreeSet<String>,
    },
    /// The containers of a pod (by uid) are gone for good.
    RuntimeGone(String),
    /// Sync a pod (by name) now.
    Sync(String),
    WaitMounted(String, Duration),
    WaitUnmounted(String, Duration),
    WaitGone(String, Duration),
    /// With the pods there are, by uid, and their versions.
    WaitIdle(BTreeMap<String, String>, Duration),
    Mounted(String),
    /// Say how a container is to be run.
    Configure(Wanted),
    Dump,
    Advance(Duration),
}

impl Order {
    /// The time limit of the order.
    pub(super) fn limit(&self) -> Duration {
        match self {
            Self::WaitMounted(_, limit)
            | Self::WaitUnmounted(_, limit)
            | Self::WaitGone(_, limit)
            | Self::WaitIdle(_, limit) => *limit,
            _ => Duration::ZERO,
        }
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start { .. } => f.write_str("start"),
            Self::RuntimeGone(uid) => write!(f, "take down the pod {uid}"),
            Self::Sync(pod) => write!(f, "sync the pod `{pod}`"),
            Self::WaitMounted(pod, _) => write!(f, "mount the volumes of `{pod}`"),
            Self::WaitUnmounted(pod, _) => write!(f, "unmount the volumes of `{pod}`"),
            Self::WaitGone(pod, _) => write!(f, "let the pod `{pod}` go"),
            Self::WaitIdle(..) => f.write_str("become idle"),
            Self::Mounted(pod) => write!(f, "list the volumes of `{pod}`"),
            Self::Configure(wanted) => write!(f, "configure `{}` of `{}`", wanted.container, wanted.pod),
            Self::Dump => f.write_str("say what it believes"),
            Self::Advance(by) => write!(f, "skip {} ms", by.as_millis()),
        }
    }
}

/// A message of the node's process to the handle: the answer to an order.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Answer {
    /// That of the order.
    pub(super) id: u64,
    pub(super) said: Said,
}

/// A message of the node's process to the journal.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Spoken {
    /// Of the manager, and not answered.
    Notice(Notice),
    /// Of a change; answered by one byte when it is recorded.
    Effect(EffectFields),
}

/// The fields of the event of `host::effect`.
pub(super) type EffectFields = BTreeMap<String, String>;

/// The answer to an order.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Said {
    Done,
    Refused(String),
    Dump(Box<Dump>),
    Mounted(Vec<(String, MountedVolume)>),
    /// With the values of variables in it, of which some may be secret.
    Configured(Sensitive<Box<Spec>>),
}
