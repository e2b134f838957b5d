//! Calls that a case itself makes to the driver. The journal has them as steps of the case: no rule for calls of the node
//! judges them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use contracts::driver::{CAPABILITIES, NODE};
use contracts::event::{DirectAnswer, Event};
use harness::journal::Edge;
use harness::manifest::{Secrets, UnknownIds};
use harness::proxy::{is_not_now, is_unanswered, repeated, unreadable};
use serde_json::{Value, json};
use tonic::{Code, Status};

use super::{Bed, Result, StepError};

/// Calls whose request may be empty: it then asks about all volumes, snapshots or space.
const MAY_BE_EMPTY: [&str; 3] = ["ListVolumes", "GetCapacity", "ListSnapshots"];

/// Calls whose requests have a field for secrets.
const WITH_SECRETS: [&str; 15] = [
    "CreateVolume",
    "DeleteVolume",
    "ControllerPublishVolume",
    "ControllerUnpublishVolume",
    "ValidateVolumeCapabilities",
    "ControllerExpandVolume",
    "ControllerModifyVolume",
    "CreateSnapshot",
    "DeleteSnapshot",
    "ListSnapshots",
    "CreateVolumeGroupSnapshot",
    "DeleteVolumeGroupSnapshot",
    "NodeStageVolume",
    "NodePublishVolume",
    "NodeExpandVolume",
];

/// The time limit of a call.
const CALL: Duration = Duration::from_secs(60);

/// The time for which a call is repeated while the driver answers that it cannot serve it now.
const RETRIES: Duration = Duration::from_secs(5);

impl Bed {
    /// Calls the driver, and repeats the call while the answer says that it cannot be served now, as each CO does. An answer
    /// that stays the same is a dead end: it is not waited for again.
    pub(crate) async fn call(
        &self,
        method: &str,
        request: Value,
    ) -> Result<std::result::Result<Value, Status>> {
        let (begun, mut is_repeated) = (Instant::now(), false);
        let call = async || self.call_once(method, request.clone()).await;
        repeated(call, |answer| {
            let Ok(Err(status)) = answer else { return false };
            // The first call may still be under way in the driver.
            let is_busy = is_repeated && status.code() == Code::Aborted;
            if !is_not_now(status) && !is_busy {
                return false;
            }
            is_repeated = true;
            let dead_end = format!("{method} {}", harness::proxy::code_name(status.code()));
            let mut seen = self.made.dead_ends.borrow_mut();
            let is_known = self.known_dead_ends.contains(&dead_end) || seen.contains(&dead_end);
            let goes_on = !is_known && begun.elapsed() <= RETRIES;
            if !goes_on {
                seen.insert(dead_end);
            }
            goes_on
        })
        .await
    }

    async fn call_once(
        &self,
        method: &str,
        mut request: Value,
    ) -> Result<std::result::Result<Value, Status>> {
        let secrets = self.secrets_for(method)?;
        if let Some(fields) = request.as_object_mut() {
            // The secrets of a request from the trace are masked, and would not work.
            fields.remove("secrets");
        }
        self.journal.step("asked", &format!("{method} {request}"));
        if let Some(fields) = request.as_object_mut()
            && !secrets.is_empty()
        {
            fields.insert("secrets".to_owned(), json!(secrets));
        }
        let deleted_id = deleted_id(method, &request).map(str::to_owned);
        // The driver's mounts for this call are not strays.
        let mut excuse = self.journal.excuse(method, &request);
        let begun = Instant::now();
        let called = tokio::time::timeout(CALL, self.proxy().call(method, request)).await;
        let late = || StepError::Broken(vec![format!("{method} was not answered in {} s.", CALL.as_secs())]);
        let answer = called.map_err(|_| late())?.map_err(|error| StepError::ours(&error))?;
        self.made.slowest.set(self.made.slowest.get().max(begun.elapsed()));
        if answer.is_ok() {
            self.made.deleted.borrow_mut().extend(deleted_id);
        }
        if let Some(answer) = direct_answer(method, &answer) {
            excuse.answered(answer);
        }
        let summary = match &answer {
            Ok(response) => format!("OK {response}"),
            Err(status) => format!("{} {}", harness::proxy::code_name(status.code()), status.message()),
        };
        let summary = format!("{method} {summary}");
        self.journal.step("answered", &self.journal.masks().hide(&summary));
        Ok(answer)
    }

    /// The secrets of a call: those of the manifest, and a canary if the case has asked for them.
    fn secrets_for(&self, method: &str) -> Result<BTreeMap<String, String>> {
        let files = self.manifest().secrets.clone();
        let file = match method {
            "CreateVolume" | "DeleteVolume" => files.provision,
            "ControllerPublishVolume" | "ControllerUnpublishVolume" => files.controller_publish,
            "NodeStageVolume" => files.node_stage,
            "NodePublishVolume" => files.node_publish,
            "ControllerExpandVolume" => files.controller_expand,
            "NodeExpandVolume" => files.node_expand,
            "CreateSnapshot" | "DeleteSnapshot" | "ListSnapshots" | "GetSnapshot" => files.snapshot,
            "CreateVolumeGroupSnapshot" | "DeleteVolumeGroupSnapshot" | "GetVolumeGroupSnapshot" => {
                files.snapshot
            }
            _ => None,
        };
        let mut secrets: BTreeMap<String, String> =
            Secrets::revealed(file.as_deref()).map_err(|error| StepError::ours(&error))?;
        secrets.extend(self.canary_of(method));
        Ok(secrets)
    }

    /// Adds a canary, a made-up secret with the method's name in it, to each later call that takes secrets.
    pub(crate) fn add_secret_to_each_call(&self) {
        let canary = |method: &str| (method.to_owned(), format!("canary-{:016x}-{method}", self.seed));
        self.made.canaries.borrow_mut().extend(WITH_SECRETS.map(canary));
    }

    fn canary_of(&self, method: &str) -> Option<(String, String)> {
        let canaries = self.made.canaries.borrow();
        Some(("volproof-canary".to_owned(), canaries.get(method)?.clone()))
    }

    pub(crate) fn last_request(&self, method: &str) -> Result<Value> {
        let trace = self.journal.trace();
        let last = trace.into_iter().rev().find_map(|line| match line.event {
            Event::RpcStart(start) if start.method == method => Some(start.req),
            _ => None,
        });
        last.ok_or_else(|| StepError::Broken(vec![format!("No {method} was called.")]))
    }

    /// The last answer to a method that was OK.
    pub(crate) fn last_answer(&self, method: &str) -> Result<Value> {
        let trace = self.journal.trace();
        let last = trace.into_iter().rev().find_map(|line| match line.event {
            Event::RpcEnd(end) if end.method == method && end.code == "OK" => Some(end.resp),
            _ => None,
        });
        last.ok_or_else(|| StepError::Broken(vec![format!("No {method} was answered OK.")]))
    }

    /// Waits until a call of a method has been answered, and checks that the answer is OK.
    pub(crate) async fn is_answered(&self, method: &str) -> Result {
        let broken = |what: String| StepError::Broken(vec![what]);
        if !self.journal.wait_rpc(method, Edge::End, 1, self.call_limit()).await {
            return Err(broken(format!("No {method} was called.")));
        }
        let last = self.journal.trace().into_iter().rev().find_map(|line| match line.event {
            Event::RpcEnd(end) if end.method == method => Some(end),
            _ => None,
        });
        match last.filter(|end| end.code != "OK") {
            None => Ok(()),
            Some(end) => Err(broken(format!("{method} answered {}: {}", end.code, end.message))),
        }
    }

    pub(crate) fn attaches(&self) -> bool {
        self.abilities.says.controller_can("PUBLISH_UNPUBLISH_VOLUME")
    }

    /// Ids of things that do not exist.
    pub(crate) fn unknown_ids(&self) -> UnknownIds {
        self.manifest().unknown_ids.clone()
    }

    /// The file systems that the manifest names.
    pub(crate) fn fs_types(&self) -> Vec<String> {
        self.manifest().volume.fs_types.clone()
    }

    /// The calls whose requests may not be empty: those that the driver reports, and those that every driver has.
    pub(crate) fn calls_that_need_a_field(&self) -> Vec<&'static str> {
        let says = &self.abilities.says;
        let reported = CAPABILITIES.iter().filter(|(_, service, capability)| match *service {
            NODE => says.node_can(capability),
            _ => says.controller_can(capability),
        });
        let calls = reported.map(|(method, ..)| *method).filter(|method| !MAY_BE_EMPTY.contains(method));
        // Several capabilities may report one call.
        let mut calls: Vec<_> = calls.chain(["NodePublishVolume", "NodeUnpublishVolume"]).collect();
        // Every controller has this one, also if it creates no volumes.
        calls.extend(says.plugin.contains("CONTROLLER_SERVICE").then_some("ValidateVolumeCapabilities"));
        calls.sort_unstable();
        calls.dedup();
        calls
    }

    /// The driver's own name for a volume.
    pub(crate) fn handle(&self, volume: &str) -> String {
        self.made.volumes.borrow().get(volume).map(|made| made.handle.clone()).unwrap_or_default()
    }
}

/// The id of the volume or snapshot that a call deletes.
fn deleted_id<'a>(method: &str, request: &'a Value) -> Option<&'a str> {
    let id = match method {
        "DeleteVolume" => "volumeId",
        "DeleteSnapshot" => "snapshotId",
        "DeleteVolumeGroupSnapshot" => "groupSnapshotId",
        _ => return None,
    };
    // Cases also delete made-up ids. No leftovers are looked up by those: they may be part of the name of any file.
    request[id].as_str().filter(|id| id.len() > 8 && !id.starts_with("no-such"))
}

/// The answer as rules read it; none for an unreadable one, which the calling case judges.
fn direct_answer(method: &str, answer: &std::result::Result<Value, Status>) -> Option<DirectAnswer> {
    let method = method.to_owned();
    match answer {
        Ok(response) => {
            let (code, message) = ("OK".to_owned(), String::new());
            Some(DirectAnswer { method, code, message, details: false, resp: response.clone() })
        }
        Err(status) if unreadable(status).is_some() || is_unanswered(status) => None,
        // The driver may have died, and the connection with it.
        Err(status) if matches!(status.code(), Code::Unavailable | Code::Cancelled) => None,
        Err(status) => {
            let code = harness::proxy::code_name(status.code()).to_owned();
            let message = status.message().to_owned();
            let details = !status.details().is_empty();
            Some(DirectAnswer { method, code, message, details, resp: Value::Null })
        }
    }
}
