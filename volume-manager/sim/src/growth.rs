//! Whoever wants volumes larger: the user who asks, and the controller that does its part of it.

use std::time::Duration;

use api::storage::Condition;
use api::{Bytes, Claim, Volume};

use crate::api::SimulatedApi;
use crate::driver::{SIZE, SimulatedDriver};
use crate::objects::Disk;

/// How long the controller takes to say that it is done.
const A_WHILE: Duration = Duration::from_millis(300);
/// It is the controller's turn.
const CONTROLLERS: &str = "ControllerResizeInProgress";
/// It is the node's turn.
const PENDING: &str = "NodeResizePending";
/// The node has given up.
const INFEASIBLE: &str = "NodeResizeInfeasible";

/// A volume is to be larger, and the controller does its part. One that `records` it writes down in the claim
/// how far it has come, and after the volume's object has its new size it takes a while to say that it is the
/// node's turn; an older one only adds a condition.
pub(crate) fn ask(api: &SimulatedApi, disk: &Disk, records: bool) {
    let Some(volume) = api.find::<Volume>("", &disk.volume.meta.name) else { return };
    let larger = Bytes(volume.capacity.0 + SIZE);
    let claim = disk.claim.meta.name.clone();
    api.change("default", &claim, |claim: &mut Claim| {
        claim.spec.request = larger;
        if records {
            claim.status.allocated = Some(larger);
            claim.status.resize = CONTROLLERS.to_owned();
        }
    });
    api.change("", &disk.volume.meta.name, |volume: &mut Volume| volume.capacity = larger);
    if !records {
        api.change("default", &claim, pending);
        return;
    }
    let api = api.clone();
    tokio::spawn(async move {
        tokio::time::sleep(A_WHILE).await;
        api.change("default", &claim, |claim: &mut Claim| {
            // Whoever asked for still more meanwhile may have been told of already.
            if claim.status.resize == CONTROLLERS {
                claim.status.resize = PENDING.to_owned();
                pending(claim);
            }
        });
    });
}

/// The condition that everybody understands.
fn pending(claim: &mut Claim) {
    let kind = "FileSystemResizePending".to_owned();
    claim.status.conditions.retain(|condition| condition.kind != kind);
    let condition = Condition { kind, status: "True".to_owned(), message: String::new() };
    claim.status.conditions.push(condition);
}

/// Asks again for what the node has given up. Whether it had.
pub(crate) fn insist(api: &SimulatedApi, disk: &Disk) -> bool {
    let name = &disk.claim.meta.name;
    let given_up = api.find::<Claim>("default", name).is_some_and(|claim| claim.status.resize == INFEASIBLE);
    if given_up {
        api.change("default", name, |claim: &mut Claim| claim.status.resize = PENDING.to_owned());
    }
    given_up
}

/// What a volume that is used lacks: the driver must have grown it, and its claim must say so.
pub(crate) fn missing(api: &SimulatedApi, driver: &SimulatedDriver, disk: &Disk) -> Option<String> {
    let wanted = api.find::<Volume>("", &disk.volume.meta.name)?.capacity;
    let status = api.find::<Claim>("default", &disk.claim.meta.name)?.status.clone();
    let size = driver.size(&disk.handle)?;
    if size < wanted.0 {
        return Some(format!("{} has {size} bytes and should have {}", disk.handle, wanted.0));
    }
    let told = status.capacity >= wanted && status.resize.is_empty() && status.conditions.is_empty();
    (!told).then(|| format!("the claim of {} does not say that it has grown: {status:?}", disk.handle))
}
