//! The controllers of a cluster: how they make, bind, grow, copy, attach and delete volumes.
//!
//! Only volumes that a provisioner has written down are judged: those of a case that writes its objects itself are not
//! theirs.

pub(super) mod claims;
pub(super) mod copies;
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

/// The beginning of a call of that method.
fn started<'a>(line: &'a TraceLine, method: &str) -> Option<&'a RpcStart> {
    match &line.event {
        Event::RpcStart(start) if start.method == method => Some(start),
        _ => None,
    }
}

/// The handle of a volume that the driver has just said is deleted.
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

/// The claim that a volume is bound to, if that very claim is still there.
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

/// A change that a controller has made to an object of a kind.
fn change_by_controller(line: &TraceLine, kind: ObjectKind) -> Option<&ApiChange> {
    match &line.event {
        Event::Api(change) if change.kind == kind && change.by == Client::Controller => Some(change),
        _ => None,
    }
}
