//! The controllers of a cluster: how they make, bind, grow, copy, attach and delete volumes.
//!
//! Only volumes whose object names a provisioner are judged: controllers are not responsible for volumes whose objects a
//! case writes itself.

pub(super) mod claims;
mod contents;
pub(super) mod copies;
pub(super) mod groups;
pub(super) mod growth;
pub(super) mod reclaim;

use serde_json::Value;

use super::claims::is_deleting;
use crate::event::{ApiChange, Client, Event, ObjectKind, RpcStart, TraceLine};
use crate::rule::Books;
use crate::rule::books::text;

/// The object of a volume that a provisioner has made, by the volume's handle.
fn provisioned<'a>(books: &'a Books, handle: &str) -> Option<(&'a str, &'a Value)> {
    let mut volumes = books.objects_of(ObjectKind::Volume);
    volumes.find(|(_, body)| body["spec"]["csi"]["volumeHandle"] == handle && is_provisioned(body))
}

/// The start of a call, if this line is one of the method.
fn started<'a>(line: &'a TraceLine, method: &str) -> Option<&'a RpcStart> {
    match &line.event {
        Event::RpcStart(start) if start.method == method => Some(start),
        _ => None,
    }
}

/// The handle of the volume, if this line is an answer to DeleteVolume that says it is deleted.
fn deleted<'a>(books: &'a Books, line: &TraceLine) -> Option<&'a str> {
    let Event::RpcEnd(end) = &line.event else { return None };
    let call = books.calls.get(&end.id).filter(|call| call.method == "DeleteVolume")?;
    matches!(end.code.as_str(), "OK" | "NotFound").then(|| call.volume())
}

fn is_provisioned(volume: &Value) -> bool {
    volume["metadata"]["annotations"]["pv.kubernetes.io/provisioned-by"].is_string()
}

fn handle(volume: &Value) -> &str {
    text(&volume["spec"]["csi"], "volumeHandle")
}

/// The claim that a volume is bound to, unless it is gone or another claim has its name now.
fn claim_of<'a>(books: &'a Books, volume: &Value) -> Option<&'a Value> {
    let reference = &volume["spec"]["claimRef"];
    let name = format!("{}/{}", text(reference, "namespace"), text(reference, "name"));
    let claim = books.object(ObjectKind::Claim, &name)?;
    (text(&claim["metadata"], "uid") == text(reference, "uid")).then_some(claim)
}

fn has_finalizer(object: &Value, finalizer: &str) -> bool {
    let finalizers = object["metadata"]["finalizers"].as_array().into_iter().flatten();
    finalizers.filter_map(Value::as_str).any(|held| held.starts_with(finalizer))
}

/// The change, if this line is one that a controller made to an object of the kind.
fn change_by_controller(line: &TraceLine, kind: ObjectKind) -> Option<&ApiChange> {
    match &line.event {
        Event::Api(change) if change.kind == kind && change.by == Client::Controller => Some(change),
        _ => None,
    }
}
