//! Growth and changes of attributes by the controllers beside a driver.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{bound_claim, change_by_controller, provisioned, started};
use crate::event::{Event, TraceLine, Verb};
use crate::object::PersistentVolume;
use crate::rule::books::is_unknown;
use crate::rule::{Books, Check, Checked, Report, Rule, Witness};

pub(in super::super) static ALLOCATED_BEFORE_EXPANDED: Rule = Rule {
    id: "INV-094",
    sentence: "a driver is asked to grow a volume only to the size that its claim's status says is under way",
    witnesses: &[Witness::Rpc, Witness::Api],
    check: Checked::Each(|books, line, report| {
        let Some(start) = started(line, "ControllerExpandVolume") else { return };
        let volume = start.request().volume_id();
        let claim = provisioned(books, volume).and_then(|(_, volume)| bound_claim(books, volume));
        let Some(claim) = claim else { return };
        let (Some(asked), _) = start.request().capacity_range() else { return };
        let Some(allocated) = claim.allocated_bytes() else { return };
        report.tried();
        if allocated < asked.cast_unsigned() || !claim.is_controller_resizing() {
            report.broken(&start.method, "asked for a size that is written nowhere", volume);
        }
    }),
};

pub(in super::super) static CAPACITY_IS_GRANTED: Rule = Rule {
    id: "INV-095",
    sentence: "the capacity of a volume's object never shrinks, and is no larger than the driver has answered",
    witnesses: &[Witness::Rpc, Witness::Api],
    check: Checked::With(|| Box::new(Granted::default())),
};

/// The sizes that a driver has answered, by handle.
#[derive(Default)]
struct Granted(BTreeMap<String, i64>);

impl Check for Granted {
    fn event(&mut self, books: &Books, line: &TraceLine, report: &mut Report) {
        if let Event::RpcEnd(end) = &line.event
            && end.code == "OK"
            && let Some(call) = books.calls.get(&end.id)
        {
            let (volume, size) = match call.method.as_str() {
                "CreateVolume" => (end.response().created_volume(), end.response().created_bytes()),
                "ControllerExpandVolume" => (call.volume(), end.response().grown_bytes()),
                _ => return,
            };
            if let Some(size) = size {
                let known = self.0.entry(volume.to_owned()).or_default();
                *known = size.max(*known);
            }
        }
        let Some((change, volume)) = change_by_controller::<PersistentVolume>(line) else { return };
        if change.verb == Verb::Delete || !volume.is_provisioned() {
            return;
        }
        let Some(after) = volume.capacity() else { return };
        let Some(granted) = self.0.get(volume.handle()) else { return };
        report.tried();
        let before = books.object(&change.object).and_then(PersistentVolume::capacity);
        if before.is_some_and(|before| after < before) {
            report.broken("", "the capacity of a volume was lowered", change.object.as_str());
        }
        if after > granted.cast_unsigned() {
            report.broken("", "a volume was said to be larger than its driver has answered", &change.object);
        }
    }
}

pub(in super::super) static MODIFIED_UNTIL_KNOWN: Rule = Rule {
    id: "INV-096",
    sentence: "a change of attributes is written down before the driver is asked, and asked again until its outcome is known",
    witnesses: &[Witness::Rpc, Witness::Api],
    check: Checked::With(|| Box::new(Modified::default())),
};

/// The changes whose outcome is open, by handle.
#[derive(Default)]
struct Modified {
    open: BTreeMap<String, Map<String, Value>>,
}

impl Check for Modified {
    fn event(&mut self, books: &Books, line: &TraceLine, report: &mut Report) {
        match &line.event {
            Event::RpcStart(start) if start.method == "ControllerModifyVolume" => {
                let volume = start.request().volume_id();
                let claim = provisioned(books, volume).and_then(|(_, volume)| bound_claim(books, volume));
                let Some(claim) = claim else { return };
                report.tried();
                let asked = start.request().mutable_parameters();
                if !claim.is_being_modified() {
                    report.broken(&start.method, "asked for a change that is written nowhere", volume);
                }
                if self.open.get(volume).is_some_and(|open| *open != asked) {
                    report.broken(
                        &start.method,
                        "asked for another change before the first was known",
                        volume,
                    );
                }
                self.open.insert(volume.to_owned(), asked);
            }
            Event::RpcEnd(end) if end.method == "ControllerModifyVolume" && !is_open(&end.code) => {
                if let Some(call) = books.calls.get(&end.id) {
                    self.open.remove(call.volume());
                }
            }
            _ => {}
        }
    }

    fn forget(&mut self, volume: &str) {
        self.open.remove(volume);
    }
}

/// Whether the outcome of a call is unknown. For a modifier ResourceExhausted is final, and for a node it is not.
fn is_open(code: &str) -> bool {
    is_unknown(code) && code != "ResourceExhausted"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::script::{breaks, keeps};

    const VOLUME: &str = r#"api create PersistentVolume pv controller {"metadata":{"annotations":{"pv.kubernetes.io/provisioned-by":"d"}},"spec":{"capacity":{"storage":"1Gi"},"claimRef":{"namespace":"n","name":"c","uid":"1"},"csi":{"volumeHandle":"v"}}}
    "#;
    const CLAIM: &str = "api create PersistentVolumeClaim n/c case {\"metadata\":{\"uid\":\"1\"}}\n";
    const EXPANDED: &str = r#"calls ControllerExpandVolume {"volumeId":"v","capacityRange":{"requiredBytes":"2147483648"}} {"capacityBytes":"2147483648"} OK
    "#;

    #[test]
    fn size_is_written_before_it_is_asked_for() {
        let rule = &ALLOCATED_BEFORE_EXPANDED;
        let begun = r#"api update PersistentVolumeClaim n/c controller {"status":{"allocatedResources":{"storage":"2Gi"},"allocatedResourceStatuses":{"storage":"ControllerResizeInProgress"}}}
        "#;
        keeps(rule, &[VOLUME, CLAIM, begun, EXPANDED].concat(), &[]);
        let cause = "asked for a size that is written nowhere";
        breaks(rule, cause, &[VOLUME, CLAIM, EXPANDED].concat(), &[]);
        let smaller = begun.replace("2Gi", "1Gi");
        breaks(rule, cause, &[VOLUME, CLAIM, &smaller, EXPANDED].concat(), &[]);
        let (huge, asked) =
            (begun.replace("2Gi", "4Ei"), EXPANDED.replace("2147483648", "4611686018427387904"));
        keeps(rule, &[VOLUME, CLAIM, &huge, &asked].concat(), &[]);
    }

    #[test]
    fn capacity_is_what_the_driver_answered() {
        let rule = &CAPACITY_IS_GRANTED;
        let created = r#"calls CreateVolume {"name":"x"} {"volume":{"volumeId":"v","capacityBytes":"1073741824"}} OK
        "#;
        let larger = VOLUME.replace("create", "update").replace("1Gi", "2Gi");
        keeps(rule, &[created, VOLUME, EXPANDED, &larger].concat(), &[]);
        let cause = "a volume was said to be larger than its driver has answered";
        breaks(rule, cause, &[created, VOLUME, &larger].concat(), &[]);
        let lowered = VOLUME.replace("create", "update");
        let lowered = [created, EXPANDED, VOLUME, &larger, &lowered].concat();
        breaks(rule, "the capacity of a volume was lowered", &lowered, &[]);
    }

    #[test]
    fn change_of_attributes_is_asked_for_until_it_is_known() {
        let rule = &MODIFIED_UNTIL_KNOWN;
        let begun = r#"api update PersistentVolumeClaim n/c controller {"status":{"modifyVolumeStatus":{"status":"InProgress"}}}
        "#;
        let change = |to: &str, code: &str| {
            format!(
                "calls ControllerModifyVolume {{\"volumeId\":\"v\",\"mutableParameters\":{{\"tier\":\"{to}\"}}}} {{}} {code}\n"
            )
        };
        let (open, refused) = (change("a", "Unavailable"), change("a", "Internal"));
        for refused in [refused, change("a", "ResourceExhausted")] {
            keeps(rule, &[VOLUME, CLAIM, begun, &open, &open, &refused, &change("b", "OK")].concat(), &[]);
        }
        let cause = "asked for another change before the first was known";
        breaks(rule, cause, &[VOLUME, CLAIM, begun, &open, &change("b", "OK")].concat(), &[]);
        let cause = "asked for a change that is written nowhere";
        breaks(rule, cause, &[VOLUME, CLAIM, &change("a", "OK")].concat(), &[]);
    }
}
