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

use crate::event::{ApiChange, Client, Event, RpcStart, TraceLine};
use crate::object::{ApiObject, Claim, PersistentVolume};
use crate::rule::Books;

/// The object of a volume that a provisioner has made, by the volume's handle.
fn provisioned<'a>(books: &'a Books, handle: &str) -> Option<(&'a str, PersistentVolume<'a>)> {
    books.persistent_volumes(handle).find(|(_, volume)| volume.is_provisioned())
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

/// The claim that a volume is bound to, unless it is gone or another claim has its name now.
fn bound_claim<'a>(books: &'a Books, volume: PersistentVolume<'_>) -> Option<Claim<'a>> {
    let reference = volume.claim_reference();
    let claim: Claim = books.object(&reference.name())?;
    (claim.uid() == reference.uid()).then_some(claim)
}

/// The change, if this line is one that a controller made to an object of the kind.
fn change_by_controller<'a, T: ApiObject<'a>>(line: &'a TraceLine) -> Option<(&'a ApiChange, T)> {
    line.change_of().filter(|(change, _)| change.by == Client::Controller)
}
