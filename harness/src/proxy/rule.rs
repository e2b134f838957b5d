//! Rules that change calls. Touches nothing.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tonic::Code;

use super::code::{code_from_name, code_names};
use crate::manifest::nearest;

/// A rule for calls of a method, in the words of a scenario.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Rule {
    /// The bare name of the method, such as `NodeStageVolume`.
    pub method: String,
    /// Answer with this code, in Go's spelling, instead of the driver's answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The number of calls; without it, all later calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<u32>,
    /// Delay before the call.
    #[serde(default)]
    pub delay_ms: u64,
    /// Delay before the answer.
    #[serde(default)]
    pub after_ms: u64,
    /// Never answer.
    #[serde(default)]
    pub hang: bool,
    /// Let the driver do its work although its answer is not used.
    #[serde(default)]
    pub forward: bool,
    /// Only calls for this volume, by its handle or its symbol.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<String>,
    /// Only calls with a target of this pod, by its name or UID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// Replace the answer by bytes that are no message.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub garbled: bool,
    /// Send the request a second time after the first answer.
    #[serde(default)]
    pub duplicate: bool,
}

/// Why a rule is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RuleError {
    /// There is no such code.
    #[error("cannot answer with `{code}`: there is no such code")]
    Code { code: String, nearest: Option<&'static str> },
    /// The method does not exist.
    #[error("cannot change calls of `{method}`: CSI has no such method")]
    Method { method: String },
}

impl Rule {
    /// A rule without effect, to be extended.
    pub fn of(method: &str) -> Self {
        Self { method: method.to_owned(), ..Self::default() }
    }

    /// Answers with a code instead of the driver.
    #[must_use]
    pub fn code(mut self, code: &str) -> Self {
        self.code = Some(code.to_owned());
        self
    }

    /// Limits the rule to that many calls.
    #[must_use]
    pub fn times(mut self, times: u32) -> Self {
        self.times = Some(times);
        self
    }

    /// Lets the driver do its work first: with a code, its answer is lost.
    #[must_use]
    pub fn forward(mut self) -> Self {
        self.forward = true;
        self
    }

    /// Checks that the rule is valid.
    ///
    /// # Errors
    /// When its code or its method does not exist.
    pub fn check(&self) -> Result<(), RuleError> {
        if csi_proto::descriptor::method(&self.method).is_none() {
            return Err(RuleError::Method { method: self.method.clone() });
        }
        match &self.code {
            Some(code) if code_from_name(code).is_none() => {
                Err(RuleError::Code { code: code.clone(), nearest: nearest(code, code_names()) })
            }
            _ => Ok(()),
        }
    }

    /// The rule's text in a trace.
    pub(super) fn text(&self) -> String {
        let Self { code, delay_ms, after_ms, forward, hang, .. } = self;
        // The code that the caller understands.
        let code = if self.garbled { "Internal" } else { code.as_deref().unwrap_or_default() };
        let duplicate = if self.duplicate { " duplicate=true" } else { "" };
        let garbled = if self.garbled { " garbled=true" } else { "" };
        format!(
            "code={code} delay={delay_ms} after={after_ms} forward={forward} hang={hang}{duplicate}{garbled}"
        )
    }
}

/// Holds one answer until it is opened. Clones are the same gate.
#[derive(Debug, Clone)]
pub struct Gate {
    /// The code of the answer that is held.
    reached: Arc<watch::Sender<Option<Code>>>,
    open: Arc<watch::Sender<bool>>,
}

impl Gate {
    pub(super) fn new() -> Self {
        Self { reached: Arc::new(watch::Sender::new(None)), open: Arc::new(watch::Sender::new(false)) }
    }

    /// Waits until an answer is held: the driver has done its work and the caller does not know. Returns its code.
    pub async fn reached(&self) -> Code {
        // The sender is borrowed here, so it cannot be gone.
        let mut reached = self.reached.subscribe();
        reached.wait_for(Option::is_some).await.ok().and_then(|code| *code).unwrap_or(Code::Unknown)
    }

    /// Lets the answer go on.
    pub fn open(&self) {
        self.open.send_replace(true);
    }

    pub(super) async fn pass(&self, code: Code) {
        self.reached.send_replace(Some(code));
        // The sender is borrowed here, so it cannot be gone.
        let _ = self.open.subscribe().wait_for(|set| *set).await;
    }
}

/// All rules of a proxy.
#[derive(Debug, Default)]
pub(super) struct Rules(Mutex<Vec<Active>>);

#[derive(Debug)]
struct Active {
    rule: Rule,
    left: Option<u32>,
    gate: Option<Gate>,
    /// Whether the rule waits until earlier rules are used up, instead of overriding them.
    in_turn: bool,
}

impl Rules {
    pub(super) fn add(&self, rule: Rule, gate: Option<Gate>) {
        let left = rule.times;
        self.all().push(Active { rule, left, gate, in_turn: false });
    }

    /// Adds a rule after the present ones. A present rule without a limit is replaced by it.
    pub(super) fn add_in_turn(&self, rule: Rule) {
        let left = rule.times.filter(|times| *times > 0);
        self.all().push(Active { rule, left, gate: None, in_turn: true });
    }

    pub(super) fn clear(&self, method: &str) {
        self.all().retain(|active| !method.is_empty() && active.rule.method != method);
    }

    /// Takes the rule for a call and counts the call. A volume has two names: its handle and its symbol. `is_pod` says whether
    /// a pod is that of the call.
    pub(super) fn take(
        &self,
        method: &str,
        volume: [&str; 2],
        is_pod: impl Fn(&str) -> bool,
    ) -> Option<(Rule, Option<Gate>)> {
        let mut all = self.all();
        let meant = |active: &Active| {
            let of_volume = active.rule.volume.as_deref().is_none_or(|wanted| volume.contains(&wanted));
            let of_pod = active.rule.pod.as_deref().is_none_or(&is_pod);
            active.rule.method == method && of_volume && of_pod && active.left != Some(0)
        };
        let latest = all.iter().rposition(meant)?;
        let first = all.iter().position(|active| meant(active) && active.left.is_some()).unwrap_or(latest);
        let chosen = if all[latest].in_turn { first } else { latest };
        let active = &mut all[chosen];
        active.left = active.left.map(|left| left - 1);
        Some((active.rule.clone(), active.gate.clone()))
    }

    fn all(&self) -> MutexGuard<'_, Vec<Active>> {
        // Rules are added and used up whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
