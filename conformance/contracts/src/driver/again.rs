//! A call that is made a second time, because its first answer was lost or the caller has restarted, gets the same
//! answer.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::csi::{PathField, Request};
use crate::event::{Event, Role, RpcEnd, RpcStart, TraceLine};
use crate::rule::books::is_unknown;
use crate::rule::{Books, Check, Checked, Report, Rule, Witness, work};

use super::{answered, difference, was_made_twice};

pub(super) static CREATED: Rule = Rule {
    id: "DRV-010",
    sentence: "creating a volume again by its name and with the same request gives the same volume",
    witnesses: &[Witness::Rpc],
    check: Checked::Each(|books, line, report| judge_repeated_call(books, line, report, "CreateVolume")),
};

pub(super) static DELETED: Rule = Rule {
    id: "DRV-020",
    sentence: "deleting a volume that is not there is OK",
    witnesses: &[Witness::Rpc],
    check: Checked::Each(|books, line, report| judge_repeated_call(books, line, report, "DeleteVolume")),
};

pub(super) static ATTACHED: Rule = Rule {
    id: "DRV-030",
    sentence: "publishing a volume to a node again gives the same publish context",
    witnesses: &[Witness::Rpc],
    check: Checked::Each(|books, line, report| {
        judge_repeated_call(books, line, report, "ControllerPublishVolume")
    }),
};

pub(super) static DETACHED: Rule = Rule {
    id: "DRV-034",
    sentence: "unpublishing from a node again is OK, and so is unpublishing from all nodes at once",
    witnesses: &[Witness::Rpc],
    check: Checked::Each(|books, line, report| {
        judge_repeated_call(books, line, report, "ControllerUnpublishVolume")
    }),
};

fn judge_repeated_call(books: &Books, line: &TraceLine, report: &mut Report, method: &'static str) {
    let Some((call, end)) = answered(books, line, method).filter(|(_, end)| was_made_twice(end)) else {
        return;
    };
    report.tried();
    let name = match call.volume() {
        "" => call.request().name(),
        volume => volume,
    };
    if end.code != "OK" && !is_unknown(&end.code) {
        report.broken(method, "the same call was refused the second time", format!("{name}: {}", end.code));
    } else if let Some(difference) = difference(end) {
        let detail = if difference.is_empty() { name.to_owned() } else { format!("{name}: {difference}") };
        report.broken(method, "the same call was answered otherwise the second time", detail);
    }
}

pub(super) static STAGED: Rule = Rule {
    id: "DRV-100",
    sentence: "staging again in the same way is OK",
    witnesses: &[Witness::Rpc],
    check: Checked::With(|| {
        Box::new(Repeated {
            method: "NodeStageVolume",
            path_field: PathField::Staging,
            undoing: &["NodeUnstageVolume", "ControllerUnpublishVolume", "DeleteVolume"],
            cause: "staging again was refused",
            done: BTreeMap::new(),
            calls: BTreeMap::new(),
            repeats: BTreeMap::new(),
        })
    }),
};

pub(super) static PUBLISHED: Rule = Rule {
    id: "DRV-101",
    sentence: "publishing again in the same way is OK",
    witnesses: &[Witness::Rpc],
    check: Checked::With(|| {
        Box::new(Repeated {
            method: "NodePublishVolume",
            path_field: PathField::Target,
            undoing: &[
                "NodeUnpublishVolume",
                "NodeUnstageVolume",
                "ControllerUnpublishVolume",
                "DeleteVolume",
            ],
            cause: "publishing again was refused",
            done: BTreeMap::new(),
            calls: BTreeMap::new(),
            repeats: BTreeMap::new(),
        })
    }),
};

/// Requests of one method that were answered OK, and calls that repeat one of them.
struct Repeated {
    method: &'static str,
    path_field: PathField,
    /// Calls that end what one of `method` has done: at the path they name, or for the whole volume.
    undoing: &'static [&'static str],
    cause: &'static str,
    /// The requests that were carried out and not undone since, by volume and path.
    done: BTreeMap<(String, String), Value>,
    /// The requests of the calls under way.
    calls: BTreeMap<u64, Value>,
    /// The calls under way that repeat one of `done`, by volume and path. Only those: a trace may have any number of calls
    /// without an end.
    repeats: BTreeMap<(String, String), BTreeSet<u64>>,
}

impl Repeated {
    fn key(&self, request: &Value) -> (String, String) {
        key(Request::of(request), self.path_field)
    }

    fn started(&mut self, start: &RpcStart) {
        if start.method == self.method {
            let request = start.request().without_secrets();
            let key = self.key(&request);
            if self.done.get(&key) == Some(&request) {
                self.repeats.entry(key).or_default().insert(start.id);
            }
            self.calls.insert(start.id, request);
        } else if self.undoing.contains(&start.method.as_str()) {
            let (volume, path) = key(start.request(), self.path_field);
            if path.is_empty() {
                self.forget_ended(|(of, _)| *of == volume);
            } else {
                let key = (volume, path);
                self.done.remove(&key);
                self.repeats.remove(&key);
            }
        }
    }

    fn ended(&mut self, end: &RpcEnd, report: &mut Report) {
        let Some(request) = self.calls.remove(&end.id) else { return };
        let key = self.key(&request);
        let repeats = self.repeats.get_mut(&key).is_some_and(|calls| calls.remove(&end.id));
        if !end.is_from_the_driver() {
            return;
        }
        let again = repeats || was_made_twice(end);
        if again && !is_unknown(&end.code) {
            report.tried();
        }
        if end.code == "OK" {
            self.done.insert(key, request);
        } else if again && !is_unknown(&end.code) {
            report.broken(self.method, self.cause, format!("{}: {}", key.1, end.code));
        }
    }

    /// Forgets calls whose effect has ended: a later call does not repeat them, nor does one that is under way.
    fn forget_ended(&mut self, ended: impl Fn(&(String, String)) -> bool) {
        let stays = |key: &(String, String)| {
            work::add();
            !ended(key)
        };
        self.done.retain(|key, _| stays(key));
        self.repeats.retain(|key, _| stays(key));
    }
}

impl Check for Repeated {
    fn forget(&mut self, volume: &str) {
        self.done.retain(|(of, _), _| of != volume);
    }

    fn event(&mut self, _books: &Books, line: &TraceLine, report: &mut Report) {
        match &line.event {
            Event::RpcStart(start) => self.started(start),
            Event::RpcEnd(end) => self.ended(end, report),
            // Once the mount is gone, by any process, a later call has to mount anew, which may fail.
            Event::MountDel(gone) => self.forget_ended(|(_, path)| *path == gone.target),
            Event::Process(edge) if edge.who == Role::Driver => self.forget_ended(|_| true),
            _ => {}
        }
    }
}

/// A request's volume and path.
fn key(request: Request<'_>, path: PathField) -> (String, String) {
    (request.volume_id().to_owned(), request.path(path).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::script::{breaks, keeps, passes_over};

    const TWICE: &str = "code= delay=0 after=0 forward=false hang=false duplicate=true";

    #[test]
    fn different_answer_to_a_repeated_call_is_broken() {
        let rules = [
            (&CREATED, "CreateVolume {\"name\":\"n\"}"),
            (&DELETED, "DeleteVolume {\"volumeId\":\"v\"}"),
            (&ATTACHED, "ControllerPublishVolume {\"volumeId\":\"v\"}"),
            (&DETACHED, "ControllerUnpublishVolume {\"volumeId\":\"v\"}"),
        ];
        for (rule, call) in rules {
            let answered = |code: &str, injected: &str| format!("calls {call} {{}} {code} {injected}");
            keeps(rule, &answered("OK", TWICE), &[]);
            keeps(rule, &answered("Unavailable", TWICE), &[]);
            // The proxy made this call once, so it may be the first.
            passes_over(rule, &answered("NotFound", ""), &[]);
            // The proxy answered in the driver's place.
            passes_over(rule, &answered("Internal", "code=Internal delay=0 hang=false duplicate=true"), &[]);
            breaks(rule, "the same call was refused the second time", &answered("NotFound", TWICE), &[]);
            let otherwise = format!("{TWICE} answers=differ");
            let cause = "the same call was answered otherwise the second time";
            breaks(rule, cause, &answered("OK", &otherwise), &[]);
            // `first=Internal` in an id that the driver chose is not the code of its first answer.
            let forged = format!("{TWICE} answers=differ in volume.volumeId: \"first=Internal\", then \"v\"");
            breaks(rule, cause, &answered("OK", &forged), &[]);
            // The same refusal twice is the same answer.
            passes_over(rule, &answered("InvalidArgument", &format!("{TWICE} first=InvalidArgument")), &[]);
        }
    }

    #[test]
    fn refused_repetition_of_stage_or_publish_is_broken() {
        let read_only = r#"{"readonly":true}"#;
        let secrets = r#"{"secrets":{"key":"***"}}"#;
        for (rule, cause, call, undo) in [
            (&STAGED, "staging again was refused", "stage v1", "unstage v1"),
            (&PUBLISHED, "publishing again was refused", "publish v1 a", "unpublish v1 a"),
        ] {
            let again = |between: &str, second: &str| format!("{call}\n{between}\n{call} {second}");
            keeps(rule, &again("", "OK"), &[]);
            passes_over(rule, &format!("{call} Internal\n{call} Internal"), &[]);
            for code in ["Aborted", "Unavailable", "DeadlineExceeded"] {
                passes_over(rule, &again("", code), &[]);
            }
            passes_over(rule, &again("", &format!("{read_only} AlreadyExists")), &[]);
            for ended in [
                undo,
                &format!("{undo} Internal"),
                "calls ControllerUnpublishVolume {\"volumeId\":\"v1\"} {} OK",
                "calls DeleteVolume {\"volumeId\":\"v1\"} {} OK",
                "driver exit\ndriver start",
            ] {
                passes_over(rule, &again(ended, "Internal"), &[]);
            }
            // The call that undoes it began before the end: it may have reached the driver first.
            passes_over(rule, &format!("{call}\n{call} begins\n{undo} begins\n{call} ends Internal"), &[]);
            // Two calls at once are no repetition.
            passes_over(rule, &format!("{call} begins\n{call} begins\n{call} ends Internal"), &[]);

            breaks(rule, cause, &again("", "Internal"), &[]);
            breaks(rule, cause, &again("", &format!("{secrets} Internal")), &[]);
            breaks(rule, cause, &again("node kill\nnode start", "AlreadyExists"), &[]);
            breaks(rule, cause, &again("unpublish v1 other", "Internal"), &[]);
        }
        let twice = |method: &str| format!("calls {method} {{\"volumeId\":\"v\"}} {{}} Internal {TWICE}");
        breaks(&STAGED, "staging again was refused", &twice("NodeStageVolume"), &[]);
        breaks(&PUBLISHED, "publishing again was refused", &twice("NodePublishVolume"), &[]);
        passes_over(&STAGED, &[&twice("NodeStageVolume"), " first=Internal"].concat(), &[]);
    }

    #[test]
    fn publish_after_its_mount_is_gone_is_no_repetition() {
        let gone = "mount target:v1/a\npublish v1 a\numount target:v1/a\npublish v1 a Internal";
        passes_over(&PUBLISHED, gone, &[]);
        let elsewhere = "mount target:v1/b\npublish v1 a\numount target:v1/b\npublish v1 a Internal";
        breaks(&PUBLISHED, "publishing again was refused", elsewhere, &[]);
    }
}
