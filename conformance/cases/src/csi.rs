//! Volumes of a CSI driver.

mod block;
mod calls;
mod capacity;
mod claims;
mod copies;
mod crashes;
mod daemons;
mod data;
mod device;
mod fields;
mod flags;
mod group;
mod groups;
mod growth;
mod identity;
mod inline;
mod kinds;
mod lifecycle;
mod limits;
mod lists;
mod load;
mod modify;
mod mounts;
mod names;
mod nodes;
mod order;
mod paths;
mod process;
mod publish;
mod races;
mod reboot;
mod recovery;
mod registration;
mod secrets;
mod sharing;
mod siblings;
mod snapshots;
mod staging;
mod stats;
mod topology;

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use crate::prelude::*;

fn stage(node: &NodeCalls) -> Call {
    Box::pin(node.stage())
}

fn publish(node: &NodeCalls) -> Call {
    Box::pin(node.publish("web"))
}

fn unpublish(node: &NodeCalls) -> Call {
    Box::pin(node.unpublish("web"))
}

fn unstage(node: &NodeCalls) -> Call {
    Box::pin(node.unstage())
}

/// The calls for a volume of `web`, from staging to unstaging, in order.
const STAGE_TO_UNSTAGE: [fn(&NodeCalls) -> Call; 4] = [stage, publish, unpublish, unstage];

/// Checks that each call for a volume is answered while another volume hangs. `end_hang` lets that one answer or fail: after
/// the calls, or before a call without an answer is reported.
async fn check_use_beside_a_hang(cx: &Cx, beside: &NodeCalls, end_hang: impl Fn() -> Result) -> Result {
    for call in STAGE_TO_UNSTAGE {
        let answered = cx.answer_to(call(beside)).await;
        if answered.is_err() {
            end_hang()?;
        }
        if let Some(answer) = answered? {
            answer.succeeds()?;
        }
    }
    end_hang()
}

/// The ControllerUnpublishVolume that undoes a ControllerPublishVolume.
fn detach_of(attach: &Value) -> Value {
    json!({ "volumeId": attach["volumeId"], "nodeId": attach["nodeId"] })
}

/// Whether a pod could write to what is mounted at a target.
fn can_write(target: &Path) -> bool {
    std::fs::write(target.join("written"), "by a workload").is_ok()
}

/// Sets `readonly` in a publish request.
fn set_read_only(request: &mut Value) {
    request["readonly"] = json!(true);
}

/// Checks that a call answers different ids for a name, for a longer one that begins with it, and for the name in capitals.
/// A driver may refuse some of them. `id` is the JSON pointer to the id in the answer.
async fn check_ids_differ_for_similar_names(cx: &Cx, method: &str, mut request: Value, id: &str) -> Result {
    let name = request["name"].as_str().unwrap_or_default().to_owned();
    let mut ids = Vec::new();
    for name in [format!("{name}-and-more"), name.clone(), name.to_uppercase()] {
        request["name"] = json!(name);
        let answer = cx.take(method, request.clone()).await?;
        ids.extend(answer.is_ok().then(|| answer.text(id).to_owned()));
    }
    let different: BTreeSet<&String> = ids.iter().collect();
    let cause = format!("{method} answered one id for two names.");
    cx.keeps("DRV-186", method, different.len() == ids.len(), &cause)
}

/// Checks that the driver has no more files after objects were created and deleted `times` times. One round before the
/// count lets it make the files that it keeps.
async fn check_deletion_leaves_no_file(
    cx: &Cx,
    method: &str,
    object: &str,
    times: usize,
    create_and_delete: impl AsyncFn(usize) -> Result,
) -> Result {
    create_and_delete(0).await?;
    let before = cx.driver_files()?;
    for number in 1..=times {
        create_and_delete(number).await?;
    }
    let cause = format!("With each {object} the driver has more files in its directory.");
    cx.keeps("DRV-022", method, cx.driver_files()? < before + times, &cause)
}

/// The size of a volume as the controller describes it; 0 says that the driver does not know it.
fn size_of(volume: &Value) -> u64 {
    volume["capacityBytes"].as_str().and_then(|size| size.parse().ok()).unwrap_or(0)
}

/// Writes a pattern to a volume as a pod would, and unpublishes, unstages and detaches the volume again.
async fn write_and_detach(cx: &Cx, volume: &Volume, pattern: &str) -> Result<NodeCalls> {
    let node = cx.node_calls(volume).await?;
    node.set_up("web").await?;
    node.writes(&node.target("web"), pattern).await?;
    node.tear_down("web").await?;
    node.detach().await?;
    Ok(node)
}
