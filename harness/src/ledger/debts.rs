//! Requests with a lasting effect that a driver has not yet undone.
//!
//! A driver in a sandbox dies with the sandbox. A driver that runs already keeps its volumes, mounts and loop devices
//! when the run that requested them is killed. So the ledger records each request before the driver sees it, and its
//! undoing when the driver has answered.

use std::collections::{BTreeMap, BTreeSet};

use csi_proto::v1::CreateVolumeRequest;
use prost::Message;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Entry, Ledger};

/// One request or its undoing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "call", rename_all = "snake_case", deny_unknown_fields)]
pub enum DriverCall {
    /// A volume is about to be created. If the answer is lost, only a repeated request returns its id.
    Create {
        /// The name in the request.
        name: String,
        /// The request, without its secrets.
        request: Vec<u8>,
    },
    /// The volume was created.
    Created {
        /// The name in the request.
        name: String,
        /// The driver's id of the volume.
        volume: String,
    },
    /// The driver has certainly not created the volume.
    NotCreated {
        /// The name in the request.
        name: String,
    },
    /// The volume was deleted.
    Deleted {
        /// The driver's id of the volume.
        volume: String,
    },
    /// The volume is about to be attached to a node.
    Attach(OnNode),
    /// The volume was detached from the node.
    Detached(OnNode),
    /// The volume is about to be staged.
    Stage(AtPath),
    /// The volume was unstaged.
    Unstaged(AtPath),
    /// The volume is about to be published.
    Publish(AtPath),
    /// The volume was unpublished.
    Unpublished(AtPath),
}

/// A volume and a node, by the driver's ids.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OnNode {
    pub volume: String,
    pub node: String,
}

/// A volume and its staging path or target.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AtPath {
    /// The driver's id of the volume.
    pub volume: String,
    pub path: String,
}

/// All recorded effects that the driver has not undone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Debts {
    /// CreateVolume requests without a final answer, by name: the volume may exist.
    pub unsure: BTreeMap<String, Vec<u8>>,
    pub volumes: BTreeSet<String>,
    /// Volumes attached to a node.
    pub attached: BTreeSet<OnNode>,
    pub staged: BTreeSet<AtPath>,
    /// Target paths.
    pub published: BTreeSet<AtPath>,
}

impl Debts {
    /// The debts that a ledger's entries add up to.
    pub fn of(entries: &[Entry]) -> Debts {
        let mut debts = Debts::default();
        for entry in entries {
            if let Entry::DriverCall { call } = entry {
                debts.book(call.clone());
            }
        }
        debts
    }

    /// Whether the driver has undone everything.
    pub fn is_empty(&self) -> bool {
        *self == Debts::default()
    }

    fn book(&mut self, call: DriverCall) {
        match call {
            DriverCall::Create { name, request } => drop(self.unsure.insert(name, request)),
            DriverCall::NotCreated { name } => drop(self.unsure.remove(&name)),
            DriverCall::Created { name, volume } => {
                self.unsure.remove(&name);
                self.volumes.insert(volume);
            }
            DriverCall::Deleted { volume } => drop(self.volumes.remove(&volume)),
            DriverCall::Attach(at) => drop(self.attached.insert(at)),
            DriverCall::Detached(at) => drop(self.attached.remove(&at)),
            DriverCall::Stage(at) => drop(self.staged.insert(at)),
            DriverCall::Unstaged(at) => drop(self.staged.remove(&at)),
            DriverCall::Publish(at) => drop(self.published.insert(at)),
            DriverCall::Unpublished(at) => drop(self.published.remove(&at)),
        }
    }
}

impl Ledger {
    /// Records a call with a lasting effect before it reaches the driver.
    ///
    /// If the record fails, the run goes on: a janitor could not undo the call then, but the journal has it.
    pub(crate) fn before_call(&self, method: &str, request: &Value, message: &[u8]) {
        let call = match method {
            "CreateVolume" => {
                let Ok(mut request) = CreateVolumeRequest::decode(message) else { return };
                request.secrets.clear();
                DriverCall::Create { name: request.name.clone(), request: request.encode_to_vec() }
            }
            "ControllerPublishVolume" => DriverCall::Attach(on_node(request)),
            "NodeStageVolume" => DriverCall::Stage(at_path(request, "stagingTargetPath")),
            "NodePublishVolume" => DriverCall::Publish(at_path(request, "targetPath")),
            _ => return,
        };
        let _ = self.record(&Entry::DriverCall { call });
    }

    /// Records the effect of an answer: `Ok` is the answer, `Err` says whether the error is final.
    pub(crate) fn after_call(&self, method: &str, request: &Value, answer: Result<&Value, bool>) {
        let name = || text(request, "name");
        let call = match (method, answer) {
            ("CreateVolume", Ok(answer)) => {
                let volume = answer.get("volume").map(|volume| text(volume, "volumeId")).unwrap_or_default();
                DriverCall::Created { name: name(), volume }
            }
            ("CreateVolume", Err(true)) => DriverCall::NotCreated { name: name() },
            ("DeleteVolume", Ok(_)) => DriverCall::Deleted { volume: text(request, "volumeId") },
            ("ControllerUnpublishVolume", Ok(_)) => DriverCall::Detached(on_node(request)),
            ("NodeUnstageVolume", Ok(_)) => DriverCall::Unstaged(at_path(request, "stagingTargetPath")),
            ("NodeUnpublishVolume", Ok(_)) => DriverCall::Unpublished(at_path(request, "targetPath")),
            _ => return,
        };
        let _ = self.record(&Entry::DriverCall { call });
    }
}

fn on_node(request: &Value) -> OnNode {
    OnNode { volume: text(request, "volumeId"), node: text(request, "nodeId") }
}

fn at_path(request: &Value, path: &str) -> AtPath {
    AtPath { volume: text(request, "volumeId"), path: text(request, path) }
}

fn text(message: &Value, key: &str) -> String {
    message.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ledger() -> (tempfile::TempDir, Ledger) {
        let directory = tempfile::tempdir().unwrap();
        let ledger = Ledger::open(&directory.path().join("ledger.jsonl")).unwrap();
        (directory, ledger)
    }

    fn debts(ledger: &Ledger) -> Debts {
        Debts::of(&super::super::read(ledger.path()).unwrap())
    }

    fn create(ledger: &Ledger) {
        let request = CreateVolumeRequest {
            name: "pvc-data".to_owned(),
            secrets: [("user".to_owned(), "very-secret".to_owned())].into(),
            ..CreateVolumeRequest::default()
        };
        ledger.before_call("CreateVolume", &json!({}), &request.encode_to_vec());
    }

    #[test]
    fn volume_is_a_debt_from_its_request_until_it_is_deleted() {
        let (_directory, ledger) = ledger();
        create(&ledger);
        assert_eq!(debts(&ledger).unsure.len(), 1);
        let answer = json!({"volume": {"volumeId": "v1"}});
        ledger.after_call("CreateVolume", &json!({"name": "pvc-data"}), Ok(&answer));
        assert_eq!(debts(&ledger), Debts { volumes: ["v1".to_owned()].into(), ..Debts::default() });
        ledger.after_call("DeleteVolume", &json!({"volumeId": "v1"}), Err(true));
        assert!(!debts(&ledger).is_empty());
        ledger.after_call("DeleteVolume", &json!({"volumeId": "v1"}), Ok(&json!({})));
        assert!(debts(&ledger).is_empty());
    }

    #[test]
    fn only_a_final_error_settles_a_request() {
        let (_directory, ledger) = ledger();
        create(&ledger);
        ledger.after_call("CreateVolume", &json!({"name": "pvc-data"}), Err(false));
        assert!(!debts(&ledger).is_empty());
        ledger.after_call("CreateVolume", &json!({"name": "pvc-data"}), Err(true));
        assert!(debts(&ledger).is_empty());
    }

    #[test]
    fn secrets_of_a_request_are_not_recorded() {
        let (_directory, ledger) = ledger();
        create(&ledger);
        let unsure = debts(&ledger).unsure.remove("pvc-data").unwrap();
        assert!(CreateVolumeRequest::decode(&*unsure).unwrap().secrets.is_empty());
    }

    #[test]
    fn each_path_is_a_debt_of_its_own() {
        let (_directory, ledger) = ledger();
        let publish = |path: &str| json!({"volumeId": "v1", "targetPath": path});
        ledger.before_call("NodePublishVolume", &publish("/a"), &[]);
        ledger.before_call("NodePublishVolume", &publish("/b"), &[]);
        ledger.after_call("NodeUnpublishVolume", &publish("/a"), Ok(&json!({})));
        let remaining = AtPath { volume: "v1".to_owned(), path: "/b".to_owned() };
        assert_eq!(debts(&ledger).published, BTreeSet::from([remaining]));
    }
}
