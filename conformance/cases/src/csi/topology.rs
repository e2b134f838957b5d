//! Places: from where a volume can be reached.

use serde_json::Value;

use crate::prelude::*;

/// A volume is reachable from the place that was asked for, and its answer says from where.
///
/// CSI, TopologyRequirement: the volume MUST be accessible from at least one of the requisite topologies.
#[case(needs = [Creates, Filesystem, Topology], driver = Shared)]
async fn volume_is_reachable_from_the_place_asked_for(cx: &mut Cx) -> Result {
    cx.volume("data").create().await?;
    let here = cx.node_topology();
    let made = cx.call("CreateVolume", request_at(cx, &here)?).await?.asked("for the place of the node");
    made.succeeds()?;
    let places = made.list("/volume/accessibleTopology");
    let told = "The plugin reports VOLUME_ACCESSIBILITY_CONSTRAINTS, and CreateVolume answered no topology.";
    cx.keeps("DRV-006", "CreateVolume", !places.is_empty(), told)?;
    let is_there = places.is_empty() || places.iter().any(|place| is_within(place, &here));
    let told = "CreateVolume for the place of the node answered OK and a volume that is elsewhere.";
    cx.keeps("DRV-019", "CreateVolume", is_there, told)?;
    cx.unmake(&made).await
}

/// A volume for a place that does not exist is refused.
///
/// CSI, CreateVolume: RESOURCE_EXHAUSTED if the volume cannot be provisioned in accessible_topology.
#[case(needs = [Creates, Filesystem, Topology], driver = Shared)]
async fn place_that_does_not_exist_is_refused(cx: &mut Cx) -> Result {
    cx.volume("data").create().await?;
    let mut nowhere = cx.node_topology();
    for value in nowhere["segments"].as_object_mut().into_iter().flat_map(|segments| segments.values_mut()) {
        *value = json!("no-such-place");
    }
    let made = cx.call("CreateVolume", request_at(cx, &nowhere)?).await?;
    cx.unmake(&made).await?;
    let is_there = made.list("/volume/accessibleTopology").iter().any(|place| is_within(place, &nowhere));
    let told = "CreateVolume for a place that does not exist answered OK and a volume that is elsewhere.";
    cx.keeps("DRV-019", "CreateVolume", !made.is_ok() || is_there, told)
}

/// CreateVolume as it was last asked for, under another name, for one place only.
fn request_at(cx: &Cx, place: &Value) -> Result<Value> {
    let mut request = cx.create_request("placed")?;
    request["accessibilityRequirements"] = json!({ "requisite": [place], "preferred": [place] });
    Ok(request)
}

/// Whether two places have something in common: each key that both have has one value.
fn is_within(place: &Value, other: &Value) -> bool {
    let (Some(one), Some(other)) = (place["segments"].as_object(), other["segments"].as_object()) else {
        return false;
    };
    let mut shared = one.iter().filter(|(key, _)| other.contains_key(*key)).peekable();
    shared.peek().is_some() && shared.all(|(key, value)| other[key] == *value)
}
