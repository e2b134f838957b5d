//! Checks of every answer, whatever the request: the length of its fields, negative numbers, and required fields.

use serde_json::Value;

/// The most bytes of a string, unless its field has another limit.
const STRING: usize = 128;
/// The most bytes of a node's id.
const NODE_ID: usize = 256;
/// The most bytes of all keys and values of a map together.
const MAP: usize = 4096;

/// Fields that hold ids of nodes.
const NODE_IDS: [&str; 2] = ["nodeId", "publishedNodeIds"];
/// Fields that are maps of strings. A topology is checked by a promise of its own.
const MAPS: [&str; 3] = ["volumeContext", "publishContext", "manifest"];
/// The message whose strings have other limits.
const TOPOLOGY: &str = "accessibleTopology";
/// Numbers that CSI forbids to be negative.
const SIZES: [&str; 9] = [
    "capacityBytes",
    "availableCapacity",
    "maximumVolumeSize",
    "minimumVolumeSize",
    "sizeBytes",
    "available",
    "total",
    "used",
    "maxVolumesPerNode",
];

/// Each field with its message, for the test that compares them with the specification.
pub(super) const FIELDS: &[(&str, &str)] = &[
    ("NodeGetInfoResponse", NODE_IDS[0]),
    ("ListVolumesResponse.VolumeStatus", NODE_IDS[1]),
    ("Volume", MAPS[0]),
    ("ControllerPublishVolumeResponse", MAPS[1]),
    ("GetPluginInfoResponse", MAPS[2]),
    ("Volume", "accessibleTopology"),
    ("NodeGetInfoResponse", TOPOLOGY),
    ("Volume", SIZES[0]),
    ("GetCapacityResponse", SIZES[1]),
    ("GetCapacityResponse", SIZES[2]),
    ("GetCapacityResponse", SIZES[3]),
    ("Snapshot", SIZES[4]),
    ("VolumeUsage", SIZES[5]),
    ("VolumeUsage", SIZES[6]),
    ("VolumeUsage", SIZES[7]),
    ("NodeGetInfoResponse", SIZES[8]),
    ("GetPluginInfoResponse", "vendorVersion"),
    ("CreateVolumeResponse", "volume"),
    ("ListVolumesResponse", "entries"),
    ("ListVolumesResponse.Entry", "volume"),
    ("ControllerGetVolumeResponse", "volume"),
    ("ControllerGetVolumeResponse", "status"),
    ("ValidateVolumeCapabilitiesResponse", "confirmed"),
    ("ValidateVolumeCapabilitiesResponse.Confirmed", "volumeCapabilities"),
    ("NodeGetVolumeStatsResponse", "usage"),
    ("VolumeUsage", "unit"),
    ("VolumeCondition", "message"),
    ("VolumeCondition", "abnormal"),
    ("CreateSnapshotResponse", "snapshot"),
    ("GetSnapshotResponse", "snapshot"),
    ("ListSnapshotsResponse", "entries"),
    ("ListSnapshotsResponse.Entry", "snapshot"),
    ("Snapshot", "snapshotId"),
    ("Snapshot", "sourceVolumeId"),
    ("Snapshot", "creationTime"),
];

/// The first field that is longer than its limit, with its length: `volumeContext has 5000 bytes`.
pub(super) fn too_long(answer: &Value) -> Option<String> {
    let mut found = None;
    walk(answer, "", &mut |name, value| {
        let (length, limit) = match value {
            Value::Object(map) if MAPS.contains(&name) => (map_bytes(map), MAP),
            Value::String(text) if NODE_IDS.contains(&name) => (text.len(), NODE_ID),
            Value::String(text) => (text.len(), STRING),
            _ => (0, 0),
        };
        if length > limit && found.is_none() {
            found = Some(format!("{name} has {length} bytes, and at most {limit} are allowed"));
        }
        // Not entered: a map is limited by its sum, and a topology by a promise of its own.
        !MAPS.contains(&name) && name != TOPOLOGY
    });
    found
}

fn map_bytes(map: &serde_json::Map<String, Value>) -> usize {
    map.iter().map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum()
}

/// The first number of [`SIZES`] that is negative.
pub(super) fn negative(answer: &Value) -> Option<String> {
    let mut found = None;
    walk(answer, "", &mut |name, value| {
        let number = super::bytes(value).filter(|number| *number < 0 && SIZES.contains(&name));
        if let (Some(number), None) = (number, &found) {
            found = Some(format!("{name} is {number}"));
        }
        !MAPS.contains(&name)
    });
    found
}

/// Whether an answer has any number of [`SIZES`].
pub(super) fn has_number(answer: &Value) -> bool {
    let mut has = false;
    walk(answer, "", &mut |name, value| {
        has |= SIZES.contains(&name) && super::bytes(value).is_some();
        !MAPS.contains(&name)
    });
    has
}

/// The lists of messages in an answer, and the fields that CSI requires of each message. Left out are fields whose zero
/// is an ordinary value, and fields whose absence breaks a promise of its own.
fn required(method: &str) -> (&'static [&'static str], &'static [&'static str]) {
    match method {
        "GetPluginInfo" => (&[""], &["vendorVersion"]),
        "CreateVolume" => (&[""], &["volume/volumeId"]),
        "ListVolumes" => (&["entries"], &["volume/volumeId"]),
        "ControllerGetVolume" => (&[""], &["volume/volumeId", "status"]),
        "NodeGetVolumeStats" => (&["usage"], &["unit"]),
        _ => (&[], &[]),
    }
}

/// The required fields of a snapshot.
const OF_SNAPSHOT: &[&str] = &["snapshotId", "sourceVolumeId", "creationTime"];
/// The zeros of a timestamp, which a driver fills in if it has no time: seconds since 1970, and Go's zero time.
const NO_TIMES: [&str; 2] = ["1970-01-01T00:00:00", "0001-01-01T00:00:00"];

/// The first required field that the answer lacks.
pub(super) fn missing(method: &str, answer: &Value) -> Option<String> {
    let (each, fields) = required(method);
    let of_call = each.iter().flat_map(|each| messages(answer, each)).find_map(|one| lacks(one, fields));
    of_call.or_else(|| silent_condition(answer)).or_else(|| empty_confirmation(answer))
}

/// The message, if the answer has the condition of an abnormal volume without one.
fn silent_condition(answer: &Value) -> Option<String> {
    let mut abnormal = conditions(answer).into_iter().filter(|condition| is_abnormal(condition));
    let field = abnormal.find_map(|condition| lacks(condition, &["message"]))?;
    Some(format!("volumeCondition.{field}"))
}

/// Whether an answer has the condition of a volume that is well without a message; `None` if it has none of such a volume.
pub(super) fn is_well_without_words(answer: &Value) -> Option<bool> {
    let mut well = conditions(answer).into_iter().filter(|condition| !is_abnormal(condition)).peekable();
    well.peek()?;
    Some(well.any(|condition| lacks(condition, &["message"]).is_some()))
}

/// The conditions of volumes in an answer.
fn conditions(answer: &Value) -> Vec<&Value> {
    let mut found = Vec::new();
    walk(answer, "", &mut |name, value| {
        if name == "volumeCondition" && value.is_object() {
            found.push(value);
        }
        true
    });
    found
}

fn is_abnormal(condition: &Value) -> bool {
    condition["abnormal"] == true
}

/// The capabilities, if the answer has a confirmation without them.
fn empty_confirmation(answer: &Value) -> Option<String> {
    let confirmed = answer.get("confirmed").filter(|confirmed| confirmed.is_object())?;
    lacks(confirmed, &["volumeCapabilities"]).map(|field| format!("confirmed.{field}"))
}

/// The first required field that a snapshot of the answer lacks; `None` if the answer is not about snapshots.
pub(super) fn missing_of_snapshot(method: &str, answer: &Value) -> Option<Option<String>> {
    let snapshots: Vec<&Value> = match method {
        "CreateSnapshot" | "GetSnapshot" => vec![&answer["snapshot"]],
        "ListSnapshots" => messages(answer, "entries").map(|entry| &entry["snapshot"]).collect(),
        _ => vec![],
    };
    (!snapshots.is_empty()).then(|| snapshots.into_iter().find_map(|one| lacks(one, OF_SNAPSHOT)))
}

fn messages<'a>(answer: &'a Value, list: &str) -> Box<dyn Iterator<Item = &'a Value> + 'a> {
    match list {
        "" => Box::new(std::iter::once(answer)),
        list => Box::new(answer[list].as_array().into_iter().flatten()),
    }
}

fn lacks(message: &Value, fields: &[&str]) -> Option<String> {
    let is_there = |field: &&&str| {
        let value = message.pointer(&format!("/{field}")).unwrap_or(&Value::Null);
        match value {
            Value::Null => false,
            Value::String(text) => {
                let is_zero = text.is_empty() || text.starts_with("UNKNOWN");
                !is_zero && !NO_TIMES.iter().any(|none| text.starts_with(none))
            }
            Value::Array(list) => !list.is_empty(),
            _ => true,
        }
    };
    fields.iter().find(|field| !is_there(field)).map(|field| field.replace('/', "."))
}

/// Visits each value with the name of its field; an entry of a list has the name of the list. Goes into a value only if
/// `visit` returns `true` for it.
fn walk<'a>(value: &'a Value, name: &'a str, visit: &mut dyn FnMut(&'a str, &'a Value) -> bool) {
    if !visit(name, value) {
        return;
    }
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, value)| walk(value, name, visit)),
        Value::Array(entries) => entries.iter().for_each(|entry| walk(entry, name, visit)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_field_has_the_limit_of_its_kind() {
        let (fits, long) = ("a".repeat(128), "a".repeat(129));
        assert_eq!(too_long(&json!({ "volume": { "volumeId": fits } })), None);
        assert!(too_long(&json!({ "entries": [{}, { "volume": { "volumeId": long } }] })).is_some());
        let id = |length| json!({ "status": { "publishedNodeIds": ["n".repeat(length)] } });
        assert_eq!((too_long(&id(256)), too_long(&id(257)).is_some()), (None, true));
        let map = |length: usize| json!({ "volume": { "volumeContext": { "key": "v".repeat(length - 3) } } });
        assert_eq!(too_long(&map(4096)), None);
        let found = too_long(&map(4097)).expect("it is too long");
        assert_eq!(found, "volumeContext has 4097 bytes, and at most 4096 are allowed");
        let topology = json!({ "accessibleTopology": [{ "segments": { "zone": long } }] });
        assert_eq!(too_long(&topology), None, "a topology has another promise");
    }

    #[test]
    fn only_sizes_may_not_be_negative() {
        assert_eq!(
            negative(&json!({ "maxVolumesPerNode": "-1" })).as_deref(),
            Some("maxVolumesPerNode is -1")
        );
        assert_eq!(
            negative(&json!({ "usage": [{ "total": "5" }, { "used": "-7" }] })).as_deref(),
            Some("used is -7")
        );
        assert_eq!(negative(&json!({ "volume": { "volumeContext": { "total": "-1" } } })), None);
        assert!(has_number(&json!({ "availableCapacity": "0" })) && !has_number(&json!({ "nodeId": "-1" })));
    }

    #[test]
    fn required_field_is_missed_wherever_it_belongs() {
        assert_eq!(missing("CreateVolume", &json!({})).as_deref(), Some("volume.volumeId"));
        let entries = json!({ "entries": [{ "volume": { "volumeId": "a" } }, { "volume": {} }] });
        assert_eq!(missing("ListVolumes", &entries).as_deref(), Some("volume.volumeId"));
        assert_eq!(missing("ListVolumes", &json!({ "entries": [] })), None);
        let complete = json!({ "volume": { "volumeId": "a" }, "status": {} });
        assert_eq!(missing("ControllerGetVolume", &complete), None);
        let unit = |unit: &str| json!({ "usage": [{ "unit": unit }] });
        assert_eq!(missing("NodeGetVolumeStats", &unit("BYTES")), None);
        assert_eq!(missing("NodeGetVolumeStats", &unit("UNKNOWN")).as_deref(), Some("unit"));
        let silent = json!({ "volumeCondition": { "abnormal": true } });
        assert_eq!(missing("NodeGetVolumeStats", &silent).as_deref(), Some("volumeCondition.message"));
        let well = json!({ "entries": [{ "status": { "volumeCondition": { "message": "" } } }] });
        assert_eq!(missing("ListVolumes", &json!({ "volumeCondition": {} })), None);
        assert_eq!(is_well_without_words(&well), Some(true));
        assert_eq!(is_well_without_words(&json!({ "volumeCondition": { "message": "well" } })), Some(false));
        assert_eq!(is_well_without_words(&silent), None);
        let confirmed = |uses: Value| json!({ "confirmed": { "volumeCapabilities": uses } });
        let validate = |answer: &Value| missing("ValidateVolumeCapabilities", answer);
        assert_eq!(validate(&json!({ "message": "no" })), None);
        assert_eq!(validate(&confirmed(json!([{ "block": {} }]))), None);
        assert_eq!(validate(&confirmed(json!([]))).as_deref(), Some("confirmed.volumeCapabilities"));
    }

    #[test]
    fn snapshot_has_its_fields() {
        let whole =
            json!({ "snapshotId": "s", "sourceVolumeId": "v", "creationTime": "2026-01-01T00:00:00Z" });
        let mut timeless = whole.clone();
        timeless["creationTime"] = json!("1970-01-01T00:00:00Z");
        assert_eq!(missing_of_snapshot("CreateVolume", &json!({})), None);
        assert_eq!(missing_of_snapshot("ListSnapshots", &json!({ "entries": [] })), None);
        assert_eq!(missing_of_snapshot("GetSnapshot", &json!({ "snapshot": whole })), Some(None));
        let listed = json!({ "entries": [{ "snapshot": whole }, { "snapshot": timeless }] });
        assert_eq!(missing_of_snapshot("ListSnapshots", &listed), Some(Some("creationTime".to_owned())));
    }
}
