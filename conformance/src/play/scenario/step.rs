//! A step of a scenario, and the keys that it may have. Touches nothing.

use harness::proxy::Rule;
use serde::{Deserialize, Serialize};

use super::Bad;

/// A step. The allowed keys depend on its action.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Step {
    #[serde(rename = "do")]
    pub(crate) action: Action,
    #[serde(default)]
    pub(crate) pod: Option<String>,
    #[serde(default)]
    pub(crate) force: Option<bool>,
    #[serde(default)]
    pub(crate) timeout_ms: Option<u64>,
    #[serde(default)]
    pub(crate) rule: Option<Rule>,
    #[serde(default)]
    pub(crate) method: Option<String>,
    #[serde(default)]
    pub(crate) count: Option<usize>,
    #[serde(default)]
    pub(crate) kind: Option<String>,
    #[serde(default)]
    pub(crate) label: Option<String>,
    #[serde(default)]
    pub(crate) drop_pods: Option<Vec<String>>,
    #[serde(default)]
    pub(crate) drop_volumes: Option<Vec<String>>,
    #[serde(default)]
    pub(crate) register_after_ms: Option<u64>,
    #[serde(default)]
    pub(crate) volume: Option<String>,
    #[serde(default)]
    pub(crate) size_mi: Option<u64>,
    /// The UID of the pod, if it is to be another than its name says.
    #[serde(default)]
    pub(crate) uid: Option<String>,
    #[serde(default)]
    pub(crate) state: Option<State>,
    #[serde(default)]
    pub(crate) request: Option<ApiFault>,
    #[serde(default)]
    pub(crate) cmd: Option<String>,
    #[serde(default)]
    pub(crate) ms: Option<u64>,
    /// The line it begins on, from 1.
    #[serde(skip)]
    pub(crate) line: usize,
}

/// The action of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Action {
    AddPod,
    RemovePod,
    TerminatePod,
    SyncPod,
    WaitMounted,
    WaitUnmounted,
    WaitIdle,
    WaitState,
    Inject,
    DisturbApi,
    HealApi,
    #[serde(rename = "waitRPC")]
    WaitRpc,
    Snapshot,
    Restart,
    KillNode,
    ShutDownNode,
    StartNode,
    KillDriver,
    StartDriver,
    UnregisterDriver,
    RegisterDriver,
    Expand,
    UpdateConfigMap,
    Sleep,
    Sh,
}

/// The state of a volume in the node's books, or of a pod's share of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum State {
    /// Not in the books.
    Absent,
    /// It may be staged, or mounted for the pod.
    Uncertain,
    /// It is staged, or mounted for the pod.
    Mounted,
}

impl State {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::Uncertain => "uncertain",
            Self::Mounted => "mounted",
        }
    }
}

/// A fault of requests to the API.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ApiFault {
    /// The kind of object; without it all.
    pub(crate) kind: Option<String>,
    /// The verb; without it all.
    pub(crate) verb: Option<String>,
    /// Answer after so long.
    pub(crate) delay_ms: u64,
    /// Do not answer, for this reason.
    pub(crate) unavailable: Option<String>,
    /// For so many requests; without it until `healApi`.
    pub(crate) times: Option<u32>,
}

impl Step {
    /// The keys this step needs, and those it may have beside them.
    fn keys(&self) -> (&'static [&'static str], &'static [&'static str]) {
        match self.action {
            Action::AddPod => (&["pod"], &["uid"]),
            Action::TerminatePod | Action::SyncPod => (&["pod"], &[]),
            Action::RemovePod => (&["pod"], &["force"]),
            Action::WaitMounted | Action::WaitUnmounted => (&["pod"], &["timeoutMs"]),
            Action::WaitIdle => (&[], &["timeoutMs"]),
            Action::WaitState => (&["volume", "state"], &["pod", "timeoutMs"]),
            Action::Inject => (&["rule"], &[]),
            Action::DisturbApi => (&["request"], &[]),
            Action::HealApi | Action::KillNode | Action::ShutDownNode => (&[], &[]),
            Action::StartNode => (&[], &["registerAfterMs"]),
            Action::WaitRpc => (&["method"], &["count", "kind", "timeoutMs"]),
            Action::Snapshot => (&[], &["label"]),
            Action::Restart => (&[], &["dropPods", "dropVolumes", "registerAfterMs"]),
            Action::KillDriver | Action::StartDriver => (&[], &[]),
            Action::UnregisterDriver | Action::RegisterDriver => (&[], &[]),
            Action::Expand => (&["volume", "sizeMi"], &[]),
            Action::UpdateConfigMap => (&["label", "cmd"], &[]),
            Action::Sleep => (&["ms"], &[]),
            Action::Sh => (&["cmd"], &[]),
        }
    }

    /// The keys it has.
    fn given(&self) -> Vec<&'static str> {
        let all = [
            ("pod", self.pod.is_some()),
            ("force", self.force.is_some()),
            ("timeoutMs", self.timeout_ms.is_some()),
            ("rule", self.rule.is_some()),
            ("method", self.method.is_some()),
            ("count", self.count.is_some()),
            ("kind", self.kind.is_some()),
            ("label", self.label.is_some()),
            ("dropPods", self.drop_pods.is_some()),
            ("dropVolumes", self.drop_volumes.is_some()),
            ("registerAfterMs", self.register_after_ms.is_some()),
            ("volume", self.volume.is_some()),
            ("sizeMi", self.size_mi.is_some()),
            ("uid", self.uid.is_some()),
            ("state", self.state.is_some()),
            ("request", self.request.is_some()),
            ("cmd", self.cmd.is_some()),
            ("ms", self.ms.is_some()),
        ];
        all.into_iter().filter(|(_, there)| *there).map(|(key, _)| key).collect()
    }

    /// Refuses a step without a key it needs, or with one it has no use for.
    pub(super) fn check_keys(&self) -> Result<(), Bad> {
        let ((needed, possible), given) = (self.keys(), self.given());
        if let Some(missing) = needed.iter().find(|key| !given.contains(key)) {
            return Err(Bad::at(0, format!("the step {} needs `{missing}`", self.action)));
        }
        let mut all = needed.to_vec();
        all.extend(possible);
        match given.iter().find(|key| !all.contains(key)) {
            None => Ok(()),
            Some(key) => {
                let what = format!("the step {} has no use for `{key}`", self.action);
                let hint = (!all.is_empty()).then(|| format!("known here: {}", all.join(", ")));
                Err(Bad { line: 0, what, hint })
            }
        }
    }
}

impl std::fmt::Display for Action {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let word = serde_json::to_value(self).expect("a step is a word");
        f.write_str(word.as_str().unwrap_or_default())
    }
}
