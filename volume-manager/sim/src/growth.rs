//! Requests for larger volumes: the user's, and the controller's part of the expansion.

use std::time::Duration;

use api::storage::Condition;
use api::{Bytes, Claim, Volume};

use crate::api::SimulatedApi;
use crate::driver::{SIZE, SimulatedDriver};
use crate::objects::Disk;

/// The time between the controller's last write and the status that asks the node.
const PAUSE: Duration = Duration::from_millis(300);
/// The resize status while the controller expands.
const CONTROLLERS: &str = "ControllerResizeInProgress";
/// The resize status that asks the node to expand.
const PENDING: &str = "NodeResizePending";
/// The resize status after the node has given up.
const INFEASIBLE: &str = "NodeResizeInfeasible";

/// Requests an expansion and does the controller's part of it. With `records`, the controller records its
/// progress in the claim, and asks the node some time after the PersistentVolume has its new size; an older
/// controller only sets a condition.
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
        tokio::time::sleep(PAUSE).await;
        api.change("default", &claim, |claim: &mut Claim| {
            // A still larger request may have been recorded meanwhile.
            if claim.status.resize == CONTROLLERS {
                claim.status.resize = PENDING.to_owned();
                pending(claim);
            }
        });
    });
}

/// The condition that both kinds of controllers set.
fn pending(claim: &mut Claim) {
    let kind = "FileSystemResizePending".to_owned();
    claim.status.conditions.retain(|condition| condition.kind != kind);
    let condition = Condition { kind, status: "True".to_owned(), message: String::new() };
    claim.status.conditions.push(condition);
}

/// Requests the expansion again that the node has given up. Whether there was one.
pub(crate) fn insist(api: &SimulatedApi, disk: &Disk) -> bool {
    let name = &disk.claim.meta.name;
    let given_up = api.find::<Claim>("default", name).is_some_and(|claim| claim.status.resize == INFEASIBLE);
    if given_up {
        api.change("default", name, |claim: &mut Claim| claim.status.resize = PENDING.to_owned());
    }
    given_up
}

/// What is missing of an expansion of a volume in use: the driver must have expanded it, and its claim must say
/// so.
pub(crate) fn missing(api: &SimulatedApi, driver: &SimulatedDriver, disk: &Disk) -> Option<String> {
    let wanted = api.find::<Volume>("", &disk.volume.meta.name)?.capacity;
    let status = api.find::<Claim>("default", &disk.claim.meta.name)?.status.clone();
    let size = driver.size(&disk.handle)?;
    if size < wanted.0 {
        return Some(format!("{} has {size} bytes and should have {}", disk.handle, wanted.0));
    }
    let has_grown = status.capacity >= wanted && status.resize.is_empty() && status.conditions.is_empty();
    (!has_grown).then(|| format!("the claim of {} does not say that it has grown: {status:?}", disk.handle))
}
