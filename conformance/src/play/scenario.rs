//! A scenario: objects and steps. Reads its text and nothing else.
//!
//! The format is that of the recordings. An unknown key or word is an error with the line and the word that was probably
//! meant.

mod step;

use api::{Bytes, Kind};
use harness::manifest::nearest;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{manifest, names, yaml};

pub(crate) use step::{Action, State, Step};

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Scenario {
    pub(crate) name: String,
    pub(crate) desc: String,
    #[serde(deserialize_with = "or_default")]
    pub(crate) driver: DriverOptions,
    #[serde(deserialize_with = "or_default")]
    pub(crate) volumes: Vec<VolumeConf>,
    /// Manifests, as Kubernetes has them, without `kind`.
    #[serde(deserialize_with = "or_default")]
    pub(crate) pods: Vec<Value>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) config_maps: Vec<Value>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) secrets: Vec<Value>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) services: Vec<Value>,
    /// The delay of attaching.
    pub(crate) attach_delay_ms: u64,
    /// The period of the node's status updates.
    pub(crate) node_status_ms: u64,
    #[serde(deserialize_with = "or_default")]
    pub(crate) steps: Vec<Step>,
}

/// The fields of the CSIDriver object, and the capabilities that are hidden from the node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct DriverOptions {
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) attach_required: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fs_group_policy: Option<String>,
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) pod_info_on_mount: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) token_audiences: Vec<String>,
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) requires_republish: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) strip_node_caps: Vec<String>,
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) register_after_ms: u64,
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) disable: bool,
}

/// A volume of the driver with a claim bound to it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct VolumeConf {
    pub(crate) name: String,
    #[serde(deserialize_with = "megabytes")]
    pub(crate) size_mi: u64,
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) block: bool,
    #[serde(deserialize_with = "or_default")]
    pub(crate) access_modes: Vec<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) fs_type: String,
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) pv_read_only: bool,
}

/// Why a scenario cannot be played.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bad {
    /// The line, from 1; 0 if it is about none.
    pub(crate) line: usize,
    /// The message, without the line.
    pub(crate) what: String,
    /// The word that was probably meant.
    pub(crate) hint: Option<String>,
}

impl Scenario {
    pub(crate) fn parse(text: &str) -> Result<Self, Bad> {
        let text = harness::yaml::without_mark(text);
        harness::yaml::check_depth(text).map_err(|deep| Bad::at(deep.line, deep.to_string()))?;
        let mut scenario = Self::read(text).map_err(|error| Bad::of_yaml(&error, text))?;
        for volume in &mut scenario.volumes {
            if volume.access_modes.is_empty() {
                volume.access_modes.push("ReadWriteOnce".to_owned());
            }
            volume.size_mi = if volume.size_mi == 0 { DEFAULT_MI } else { volume.size_mi };
        }
        for (number, step) in scenario.steps.iter_mut().enumerate() {
            step.line = step_line(text, number);
        }
        scenario.check(text)?;
        Ok(scenario)
    }

    fn read(text: &str) -> Result<Self, serde_yaml_ng::Error> {
        let mut document: serde_yaml_ng::Value = serde_yaml_ng::from_str(text)?;
        yaml::as_kubernetes_reads(&mut document)?;
        serde_yaml_ng::from_value(document).map_err(|error| {
            // Only the text itself knows the line.
            let placed = serde_yaml_ng::from_str::<Self>(text).err();
            placed.filter(|placed| placed.to_string().contains(&error.to_string())).unwrap_or(error)
        })
    }

    /// The names of its pods, in order.
    pub(crate) fn pod_names(&self) -> Vec<&str> {
        self.pods.iter().map(manifest::name).collect()
    }

    fn check(&self, text: &str) -> Result<(), Bad> {
        if self.steps.is_empty() {
            return Err(Bad::at(0, "the scenario has no steps"));
        }
        for volume in &self.volumes {
            let line = || mentioned(text, "volumes:", &volume.name);
            if volume.name.is_empty() {
                return Err(Bad::at(section(text, "volumes:"), "a volume has no name"));
            }
            names::subdomain("volume", &volume.name).map_err(|bad| bad.on(line()))?;
            for mode in &volume.access_modes {
                known("access mode", mode, ACCESS_MODES).map_err(|bad| bad.on(line()))?;
            }
        }
        if let Some(policy) = &self.driver.fs_group_policy {
            known("policy", policy, POLICIES).map_err(|bad| bad.on(mentioned(text, "driver:", policy)))?;
        }
        for document in self.pods.iter().chain(&self.config_maps).chain(&self.secrets) {
            let named = || mentioned(text, "", manifest::name(document));
            names::check(document).map_err(|bad| bad.on(named()))?;
        }
        for pod in &self.pods {
            manifest::check_pod(pod).map_err(|(word, bad)| bad.on(mentioned(text, "pods:", &word)))?;
        }
        for step in &self.steps {
            self.check_step(step).map_err(|bad| bad.on(step.line))?;
        }
        Ok(())
    }

    fn check_step(&self, step: &Step) -> Result<(), Bad> {
        use Action as A;
        step.check_keys()?;
        if let Some(pod) = &step.pod {
            known("pod", pod, &self.pod_names())?;
        }
        for pod in step.drop_pods.iter().flatten() {
            known("pod", pod, &self.pod_names())?;
        }
        let volumes: Vec<&str> = self.volumes.iter().map(|volume| volume.name.as_str()).collect();
        for volume in step.drop_volumes.iter().flatten().chain(&step.volume) {
            known("volume", volume, &volumes)?;
        }
        if step.action == A::UpdateConfigMap {
            let maps: Vec<&str> = self.config_maps.iter().map(manifest::name).collect();
            known("config map", step.label.as_deref().unwrap_or_default(), &maps)?;
        }
        if let Some(fault) = &step.request {
            let kinds: Vec<&str> = Kind::ALL.iter().map(|kind| kind.as_str()).collect();
            fault.kind.iter().try_for_each(|kind| known("kind", kind, &kinds))?;
            fault.verb.iter().try_for_each(|verb| known("verb", verb, VERBS))?;
        }
        if let Some(pod) = step.rule.as_ref().and_then(|rule| rule.pod.as_deref()) {
            known("pod", pod, &self.pod_names())?;
        }
        for method in step.rule.iter().map(|rule| &rule.method).chain(&step.method) {
            known("method", method, METHODS)?;
        }
        if let Some(rule) = &step.rule
            && let Some(code) = rule.code.as_deref().filter(|code| !code.is_empty())
        {
            let codes: Vec<&str> = harness::proxy::code_names().collect();
            known("code", code, &codes)?;
        }
        // The ids of inline volumes are made by the node, and begin so.
        let volume = step.rule.as_ref().and_then(|rule| rule.volume.as_deref());
        if let Some(volume) = volume.filter(|volume| !volume.starts_with("csi-")) {
            known("volume", volume, &volumes)?;
        }
        match step.kind.as_deref() {
            None | Some("start" | "end" | "") => Ok(()),
            Some(other) => known("edge of a call", other, &["start", "end"]),
        }
    }
}

impl Bad {
    pub(crate) fn at(line: usize, what: impl Into<String>) -> Self {
        Self { line, what: what.into(), hint: None }
    }

    pub(crate) fn on(self, line: usize) -> Self {
        Self { line: if self.line == 0 { line } else { self.line }, ..self }
    }

    /// Replaces Serde's "unknown field `x`, expected one of `a`, `b`" by a suggestion of the nearest key.
    fn of_yaml(error: &serde_yaml_ng::Error, text: &str) -> Self {
        let said = error.to_string();
        let line = error.location().map_or(0, |place| place.line());
        let unknown = ["unknown field `", "unknown variant `"].iter().find_map(|what| said.find(what));
        let Some(start) = unknown else {
            let what = said.split(" at line ").next().unwrap_or(&said).to_owned();
            return Self { line, what, hint: None };
        };
        let quoted: Vec<&str> = said[start..].split('`').skip(1).step_by(2).collect();
        let (word, known) = quoted.split_first().map_or(("", &[][..]), |(word, rest)| (*word, rest));
        let what = if said[start..].starts_with("unknown variant") { "step" } else { "key" };
        let hint = match nearest(word, known.iter().copied()) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => format!("known here: {}", known.join(", ")),
        };
        // The parser names the line at which the value begins; the word is on that line or soon after it.
        let line = text.lines().enumerate().skip(line.saturating_sub(1));
        let found = line.clone().find(|(_, text)| text.contains(word)).or_else(|| line.clone().next());
        let line = found.map_or(0, |(number, _)| number + 1);
        Self { line, what: format!("unknown {what} `{word}`"), hint: Some(hint) }
    }
}

impl std::fmt::Display for Bad {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.what)
    }
}

/// The size of a volume without one.
const DEFAULT_MI: u64 = 16;

const ACCESS_MODES: &[&str] = &["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"];

const POLICIES: &[&str] = &["None", "File", "ReadWriteOnceWithFSType"];

/// The calls that a node and the controllers make.
const METHODS: &[&str] = &[
    "NodeStageVolume",
    "NodeUnstageVolume",
    "NodePublishVolume",
    "NodeUnpublishVolume",
    "NodeExpandVolume",
    "NodeGetVolumeStats",
    "NodeGetCapabilities",
    "NodeGetInfo",
    "ControllerPublishVolume",
    "ControllerUnpublishVolume",
    "ControllerExpandVolume",
    "CreateVolume",
    "DeleteVolume",
    "CreateSnapshot",
    "DeleteSnapshot",
];

/// The verbs of requests to the API.
const VERBS: &[&str] = &["get", "list", "watch", "create", "update", "patch", "delete", "token"];

/// Refuses an unknown word.
pub(crate) fn known(what: &str, word: &str, words: &[&str]) -> Result<(), Bad> {
    if words.contains(&word) {
        return Ok(());
    }
    let hint = match nearest(word, words.iter().copied()) {
        Some(meant) => Some(format!("did you mean `{meant}`?")),
        None if words.is_empty() => None,
        None => Some(format!("known here: {}", words.join(", "))),
    };
    Err(Bad { line: 0, what: format!("there is no {what} `{word}`"), hint })
}

/// The line of a top-level key.
fn section(text: &str, key: &str) -> usize {
    text.lines().position(|line| line.starts_with(key)).map_or(0, |line| line + 1)
}

/// The first line from a top-level key on that has a word in it.
fn mentioned(text: &str, key: &str, word: &str) -> usize {
    let start = section(text, key);
    let has = |line: &str| {
        let parts = line.split(|c: char| !(c.is_alphanumeric() || "-_./".contains(c)));
        parts.into_iter().any(|part| part == word)
    };
    let lines = text.lines().enumerate().skip(start.saturating_sub(1));
    lines.into_iter().find(|(_, line)| !word.is_empty() && has(line)).map_or(start, |(line, _)| line + 1)
}

/// The line a step begins on.
fn step_line(text: &str, number: usize) -> usize {
    let start = section(text, "steps:");
    let mut indent = None;
    let items = text.lines().enumerate().skip(start).filter(|(_, line)| {
        let depth = line.len() - line.trim_start().len();
        let is_item = line.trim_start().starts_with("- ") || line.trim() == "-";
        is_item && *indent.get_or_insert(depth) == depth
    });
    items.into_iter().nth(number).map_or(start, |(line, _)| line + 1)
}

/// Nothing written means the same as nothing there.
fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// A number of mebibytes that are bytes enough to be counted.
fn megabytes<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let size = u64::deserialize(deserializer)?;
    match size.checked_mul(1 << 20).map(Bytes) {
        Some(_) => Ok(size),
        None => Err(serde::de::Error::custom("the volume is too large")),
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_false(value: &bool) -> bool {
    !value
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_zero(value: &u64) -> bool {
    *value == 0
}

#[cfg(test)]
mod tests;
