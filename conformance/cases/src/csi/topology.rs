//! Topology: the nodes from which a volume is accessible.

use serde_json::Value;

use crate::prelude::*;

/// A volume is accessible from the topology that was asked for, and CreateVolume answers its topology.
///
/// CSI, TopologyRequirement: the volume MUST be accessible from at least one of the requisite topologies.
#[case(needs = [Creates, Filesystem, Topology], driver = Shared)]
async fn volume_is_reachable_from_the_place_asked_for(cx: &mut Cx) -> Result {
    cx.volume("data").create().await?;
    let here = cx.node_topology();
    let made = cx.call("CreateVolume", request_at(cx, &here)?).await?.asked("for the place of the node");
    made.succeeds()?;
    let places = made.list("/volume/accessibleTopology");
    let cause = "The plugin reports VOLUME_ACCESSIBILITY_CONSTRAINTS, and CreateVolume answered no topology.";
    cx.keeps("DRV-006", "CreateVolume", !places.is_empty(), cause)?;
    let is_there = places.is_empty() || places.iter().any(|place| is_within(place, &here));
    let cause = "CreateVolume for the place of the node answered OK and a volume that is elsewhere.";
    cx.keeps("DRV-019", "CreateVolume", is_there, cause)?;
    cx.delete_created(&made).await?;
    for list in ["requisite", "preferred"] {
        let mut request = cx.create_request(list)?;
        request["accessibilityRequirements"] = json!({ list: [here] });
        let made = cx.call("CreateVolume", request).await?;
        let cause = format!(
            "CreateVolume for the place of the node, which is `{list}` alone, answered {}.",
            made.code()
        );
        cx.keeps("DRV-019", "CreateVolume", made.is_ok(), &cause)?;
        cx.delete_created(&made).await?;
    }
    Ok(())
}

/// The topology of a node is the same before there is a volume and after.
///
/// CSI, NodeGetInfoResponse.accessible_topology: a CO places volumes and workloads by the first answer.
#[case(needs = [Creates, Filesystem, Topology])]
async fn topology_of_the_node_stays_when_there_are_volumes(cx: &mut Cx) -> Result {
    let before = cx.call("NodeGetInfo", json!({})).await?.part("/accessibleTopology");
    let data = cx.volume("data").create().await?;
    drop(cx.node_calls(&data).await?);
    let after = cx.call("NodeGetInfo", json!({})).await?.part("/accessibleTopology");
    let cause = "NodeGetInfo answered another topology after a volume was created.";
    cx.keeps("DRV-006", "NodeGetInfo", before == after, cause)
}

/// CreateVolume refuses a topology that does not exist.
///
/// CSI, CreateVolume: RESOURCE_EXHAUSTED if the volume cannot be provisioned in accessible_topology.
#[case(needs = [Creates, Filesystem, Topology], driver = Shared)]
async fn place_that_does_not_exist_is_refused(cx: &mut Cx) -> Result {
    cx.volume("data").create().await?;
    let nowhere = nowhere(cx);
    let made = cx.call("CreateVolume", request_at(cx, &nowhere)?).await?;
    cx.delete_created(&made).await?;
    let is_there = made.list("/volume/accessibleTopology").iter().any(|place| is_within(place, &nowhere));
    let cause = "CreateVolume for a place that does not exist answered OK and a volume that is elsewhere.";
    cx.keeps("DRV-019", "CreateVolume", !made.is_ok() || is_there, cause)?;
    let made = made.asked("for a place that does not exist");
    // A driver may take a place that it does not know for an invalid one.
    made.is("DRV-019", &["OK", "ResourceExhausted", "InvalidArgument"])
}

/// The name of a volume is taken for a topology from which it is not accessible.
///
/// CSI, CreateVolume: ALREADY_EXISTS if a volume of the name is incompatible with the accessibility requirements.
#[case(needs = [Creates, Filesystem, Topology], driver = Shared)]
async fn taken_name_for_another_place_is_refused(cx: &mut Cx) -> Result {
    cx.volume("data").create().await?;
    let first = cx.last_answer("CreateVolume")?["volume"]["accessibleTopology"].clone();
    let nowhere = nowhere(cx);
    let mut request = cx.last_request("CreateVolume")?;
    request["accessibilityRequirements"] = only_at(&nowhere);
    let answer = cx.call("CreateVolume", request).await?;
    let places = answer.list("/volume/accessibleTopology");
    // A volume without a place is accessible from everywhere, unless it had one before.
    let is_everywhere = places.is_empty() && first.as_array().is_none_or(Vec::is_empty);
    let is_there = is_everywhere || places.iter().any(|place| is_within(place, &nowhere));
    let cause =
        "CreateVolume of a name that is taken, for a place that cannot reach its volume, answered OK.";
    cx.keeps("DRV-011", "CreateVolume", !answer.is_ok() || is_there, cause)
}

/// GetCapacity of a topology that does not exist is zero.
///
/// CSI, GetCapacityRequest.accessible_topology: the plugin SHALL report the capacity of the storage in that topology.
#[case(needs = [TellsCapacity, Creates, Filesystem, Topology], driver = Shared)]
async fn place_that_does_not_exist_has_no_capacity(cx: &mut Cx) -> Result {
    cx.volume("data").create().await?;
    let created = cx.last_request("CreateVolume")?;
    let answer = cx
        .call(
            "GetCapacity",
            json!({
                "volumeCapabilities": created["volumeCapabilities"],
                "parameters": created["parameters"],
                "accessibleTopology": nowhere(cx),
            }),
        )
        .await?;
    answer.is_implemented()?;
    let is_none = ["", "0"].contains(&answer.text("/availableCapacity"));
    let cause = "GetCapacity of a place that does not exist answered that there is capacity.";
    cx.keeps("DRV-026", "GetCapacity", !answer.is_ok() || is_none, cause)
}

/// The last CreateVolume request with another name and a single topology.
fn request_at(cx: &Cx, place: &Value) -> Result<Value> {
    let mut request = cx.create_request("placed")?;
    request["accessibilityRequirements"] = only_at(place);
    Ok(request)
}

fn only_at(place: &Value) -> Value {
    json!({ "requisite": [place], "preferred": [place] })
}

/// A topology with the node's keys and unknown values.
fn nowhere(cx: &Cx) -> Value {
    let mut nowhere = cx.node_topology();
    for value in nowhere["segments"].as_object_mut().into_iter().flat_map(|segments| segments.values_mut()) {
        *value = json!("no-such-place");
    }
    nowhere
}

/// Whether two topologies overlap: each key that both have has the same value.
fn is_within(place: &Value, other: &Value) -> bool {
    let (Some(one), Some(other)) = (place["segments"].as_object(), other["segments"].as_object()) else {
        return false;
    };
    let mut shared = one.iter().filter(|(key, _)| other.contains_key(*key)).peekable();
    shared.peek().is_some() && shared.all(|(key, value)| other[key] == *value)
}
