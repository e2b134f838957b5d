//! Promises about the driver's name and its capabilities.

use std::collections::{BTreeMap, BTreeSet};

use crate::csi::Response;
use crate::event::{Event, Role, RpcEnd, TraceLine, Unreadable};
use crate::rule::{Books, Check, Checked, Report, Rule, Witness};

use super::answer;
use super::said_by_driver;

pub(super) static NAME: Rule = Rule {
    id: "DRV-001",
    sentence: "the plugin's name is a domain name of at most 63 characters, and the same in each answer",
    witnesses: &[Witness::Rpc],
    check: Checked::With(|| Box::new(Name::default())),
};

/// The first name that was answered.
#[derive(Default)]
struct Name(Option<String>);

impl Check for Name {
    fn event(&mut self, _books: &Books, line: &TraceLine, report: &mut Report) {
        let Some(name) = answer(line, "GetPluginInfo").map(Response::plugin_name) else { return };
        report.tried();
        if !is_domain(name) {
            report.broken("GetPluginInfo", "the plugin's name is no domain name", name);
        }
        if self.0.get_or_insert_with(|| name.to_owned()) != name {
            report.broken("GetPluginInfo", "the plugin's name has changed", name);
        }
    }
}

fn is_domain(name: &str) -> bool {
    let inner = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
    let is_label = |label: &str| !label.is_empty() && label.chars().all(inner);
    name.len() <= 63 && name.split('.').all(is_label)
}

pub(super) static READABLE: Rule = Rule {
    id: "DRV-009",
    sentence: "each answer is a gRPC status and, if OK, the message of the call, within the limits of its fields",
    witnesses: &[Witness::Rpc],
    check: Checked::Each(|_, line, report| {
        if let Event::RpcEnd(RpcEnd { method, message, unreadable: Some(unreadable), .. }) = &line.event {
            // A list may hold many entries, each within its limits.
            if *unreadable != Unreadable::TooLarge || !method.starts_with("List") {
                report.broken(unreadable.of(method), unreadable.cause(), message.as_str());
            }
            return;
        }
        let Some(end) = answer::of_driver(line) else { return };
        report.tried();
        let answer = answer::good(line).map(|(_, answer)| answer);
        if let Some(field) = answer.and_then(Response::too_long) {
            report.broken(end.method, "a field of an answer is longer than CSI allows", field);
        }
    }),
};

pub(super) static ANSWERED: Rule = Rule {
    id: "DRV-002",
    sentence: "a call that is required, always or by a reported capability, is answered, and not with UNIMPLEMENTED",
    witnesses: &[Witness::Rpc],
    check: Checked::With(|| Box::new(Reported::default())),
};

/// Optional calls, each with its capability and the call that reports capabilities.
pub const CAPABILITIES: &[(&str, &str, &str)] = &[
    ("NodeStageVolume", NODE, "STAGE_UNSTAGE_VOLUME"),
    ("NodeUnstageVolume", NODE, "STAGE_UNSTAGE_VOLUME"),
    ("NodeGetVolumeStats", NODE, "GET_VOLUME_STATS"),
    ("NodeGetVolumeStats", NODE, "VOLUME_CONDITION"),
    ("NodeExpandVolume", NODE, "EXPAND_VOLUME"),
    ("CreateVolume", CONTROLLER, "CREATE_DELETE_VOLUME"),
    ("DeleteVolume", CONTROLLER, "CREATE_DELETE_VOLUME"),
    ("ControllerPublishVolume", CONTROLLER, "PUBLISH_UNPUBLISH_VOLUME"),
    ("ControllerUnpublishVolume", CONTROLLER, "PUBLISH_UNPUBLISH_VOLUME"),
    ("ListVolumes", CONTROLLER, "LIST_VOLUMES"),
    ("GetCapacity", CONTROLLER, "GET_CAPACITY"),
    ("CreateSnapshot", CONTROLLER, "CREATE_DELETE_SNAPSHOT"),
    ("DeleteSnapshot", CONTROLLER, "CREATE_DELETE_SNAPSHOT"),
    ("ListSnapshots", CONTROLLER, "LIST_SNAPSHOTS"),
    ("GetSnapshot", CONTROLLER, "GET_SNAPSHOT"),
    ("ControllerExpandVolume", CONTROLLER, "EXPAND_VOLUME"),
    ("ControllerGetVolume", CONTROLLER, "GET_VOLUME"),
    ("ControllerModifyVolume", CONTROLLER, "MODIFY_VOLUME"),
];

/// The call that each controller has to implement, whatever it is asked for. NodePublishVolume and NodeUnpublishVolume are
/// required as well, but a plugin may have no mode for one of the uses that it is asked for.
const ALWAYS: &str = "ValidateVolumeCapabilities";

/// The call that reports the capabilities of the node service.
pub const NODE: &str = "NodeGetCapabilities";
const CONTROLLER: &str = "ControllerGetCapabilities";

/// The capabilities that were reported last, by their call.
#[derive(Default)]
struct Reported(BTreeMap<&'static str, BTreeSet<String>>);

impl Check for Reported {
    fn event(&mut self, _books: &Books, line: &TraceLine, report: &mut Report) {
        for who in [NODE, CONTROLLER] {
            if let Some(listed) = capabilities(line, who) {
                self.0.insert(who, listed);
            }
        }
        if let Some(answer) = answer::of_driver(line).filter(|answer| answer.method == ALWAYS) {
            report.tried();
            if answer.code == "Unimplemented" {
                let cause = "what each controller plugin has to implement is not implemented";
                report.broken(answer.method, cause, answer.message);
            }
            return;
        }
        let Some(end) = said_by_driver(line) else { return };
        let mut of_call = CAPABILITIES.iter().filter(|(method, ..)| *method == end.method);
        let reported = |(_, who, name): &&(&str, &'static str, &str)| {
            self.0.get(who).is_some_and(|listed| listed.contains(*name))
        };
        let Some((_, _, name)) = of_call.find(reported) else { return };
        report.tried();
        if end.code == "Unimplemented" {
            report.broken(&end.method, "what is reported is not implemented", *name);
        }
    }
}

pub(super) static CAPABILITIES_STAY: Rule = Rule {
    id: "DRV-003",
    sentence: "capabilities stay the same for as long as the plugin runs",
    witnesses: &[Witness::Rpc],
    check: Checked::With(|| Box::new(Unchanged::default())),
};

/// The capabilities that the driver has reported since it was started.
#[derive(Default)]
struct Unchanged(BTreeMap<&'static str, BTreeSet<String>>);

impl Check for Unchanged {
    fn event(&mut self, _books: &Books, line: &TraceLine, report: &mut Report) {
        if matches!(&line.event, Event::Process(edge) if edge.who == Role::Driver) {
            self.0.clear();
        }
        for who in [NODE, CONTROLLER] {
            let Some(listed) = capabilities(line, who) else { continue };
            let Some(before) = self.0.insert(who, listed.clone()) else { continue };
            report.tried();
            if before != listed {
                let changed: Vec<&str> = before.symmetric_difference(&listed).map(String::as_str).collect();
                report.broken(who, "the capabilities have changed", changed.join(", "));
            }
        }
    }
}

pub(super) static NODE_ID: Rule = Rule {
    id: "DRV-005",
    sentence: "the id of a node is not empty, has at most 256 bytes, and stays the same",
    witnesses: &[Witness::Rpc],
    check: Checked::With(|| Box::new(NodeId::default())),
};

/// The first id that was answered.
#[derive(Default)]
struct NodeId(Option<String>);

impl Check for NodeId {
    fn event(&mut self, _books: &Books, line: &TraceLine, report: &mut Report) {
        const METHOD: &str = "NodeGetInfo";
        let Some(id) = answer(line, METHOD).map(Response::node_id) else { return };
        report.tried();
        if id.is_empty() || id.len() > 256 {
            report.broken(METHOD, "the node's id is empty or too long", format!("{} bytes", id.len()));
        }
        if self.0.get_or_insert_with(|| id.to_owned()) != id {
            report.broken(METHOD, "the node's id has changed", id);
        }
    }
}

/// The capabilities in a driver's answer.
fn capabilities(line: &TraceLine, method: &str) -> Option<BTreeSet<String>> {
    Some(answer(line, method)?.capabilities().map(str::to_owned).collect())
}

/// The driver's response to a call of this method that succeeded.
fn answer<'a>(line: &'a TraceLine, method: &str) -> Option<Response<'a>> {
    said_by_driver(line).filter(|end| end.method == method && end.code == "OK").map(RpcEnd::response)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::script::{breaks, keeps, passes_over};

    #[test]
    fn a_name_is_a_domain_and_stays() {
        let rule = &NAME;
        let named = |name: &str| format!("calls GetPluginInfo {{}} {{\"name\":\"{name}\"}} OK\n");
        keeps(rule, &[named("d.example.com"), named("d.example.com")].concat(), &[]);
        passes_over(rule, "calls GetPluginInfo {} {} Internal", &[]);
        let no_name = "the plugin's name is no domain name";
        for name in ["a_b", "a..b", "", &"a".repeat(64)] {
            breaks(rule, no_name, &named(name), &[]);
        }
        let changed = [named("d.example.com"), named("e.example.com")].concat();
        breaks(rule, "the plugin's name has changed", &changed, &[]);
    }

    #[test]
    fn answer_that_cannot_be_read_breaks_the_promise_of_its_call() {
        let line = |method: &str, unreadable| {
            let (method, code) = (method.to_owned(), "Internal".to_owned());
            let (message, resp) = (String::new(), serde_json::Value::Null);
            let end = RpcEnd {
                id: 1,
                method,
                code,
                message,
                dur_ms: 0.0,
                resp,
                injected: None,
                abandoned: false,
                unreadable,
            };
            TraceLine { seq: 1, t_ms: 0.0, event: Event::RpcEnd(end) }
        };
        let found = |method: &str, unreadable| {
            let mut judge = crate::rule::Judge::new([&READABLE], READABLE.witnesses);
            let found = judge.event(&line(method, unreadable));
            found.into_iter().map(|broken| (broken.method, broken.cause)).collect::<Vec<_>>()
        };
        assert_eq!(found("CreateVolume", None), []);
        for one in Unreadable::ALL {
            let method = one.of("CreateVolume").to_owned();
            assert_eq!(found("CreateVolume", Some(one)), [(method, one.cause())]);
        }
        // Many entries, each within its limits.
        assert_eq!(found("ListVolumes", Some(Unreadable::TooLarge)), []);
        keeps(&READABLE, "stage v1 Internal", &[]);
        passes_over(&READABLE, "stage v1 begins", &[]);
        let long = format!(r#"calls CreateVolume {{}} {{"volume":{{"volumeId":"{}"}}}} OK"#, "v".repeat(129));
        breaks(&READABLE, "a field of an answer is longer than CSI allows", &long, &[]);
    }

    #[test]
    fn reported_capability_must_work() {
        let rule = &ANSWERED;
        let reported = "capabilities STAGE_UNSTAGE_VOLUME EXPAND_VOLUME\n";
        keeps(rule, &[reported, "expand v1 a Internal"].concat(), &[]);
        passes_over(rule, "expand v1 a Unimplemented", &[]);
        passes_over(rule, "capabilities STAGE_UNSTAGE_VOLUME\nexpand v1 a Unimplemented", &[]);
        let required = "what each controller plugin has to implement is not implemented";
        breaks(rule, required, "calls ValidateVolumeCapabilities {} {} Unimplemented", &[]);
        keeps(rule, "calls ValidateVolumeCapabilities {} {} InvalidArgument", &[]);
        // A capability of one service is not one of the other.
        passes_over(rule, &[reported, "calls ControllerExpandVolume {} {} Unimplemented"].concat(), &[]);
        let missing = "what is reported is not implemented";
        breaks(rule, missing, &[reported, "expand v1 a Unimplemented"].concat(), &[]);
    }

    #[test]
    fn capabilities_stay_while_the_driver_runs() {
        let rule = &CAPABILITIES_STAY;
        let (one, other) =
            ("capabilities EXPAND_VOLUME GET_VOLUME_STATS\n", "capabilities GET_VOLUME_STATS\n");
        keeps(rule, &[one, "capabilities GET_VOLUME_STATS EXPAND_VOLUME\n"].concat(), &[]);
        passes_over(rule, &[one, "driver exit\ndriver start\n", other].concat(), &[]);
        breaks(rule, "the capabilities have changed", &[one, other].concat(), &[]);
    }

    #[test]
    fn the_id_of_a_node_stays() {
        let rule = &NODE_ID;
        let says = |id: &str| format!("calls NodeGetInfo {{}} {{\"nodeId\":\"{id}\"}} OK\n");
        keeps(rule, &[says("n"), says("n")].concat(), &[]);
        breaks(
            rule,
            "the node's id has changed",
            &[says("n"), "driver start\n".into(), says("m")].concat(),
            &[],
        );
        for id in ["", &"n".repeat(257)] {
            breaks(rule, "the node's id is empty or too long", &says(id), &[]);
        }
    }
}
