//! Disturbances of the manager's surroundings. Rules that would ask too much of a disturbed world consult them.

use serde::{Deserialize, Serialize};

use super::{Event, ObjectKind, PodChange, PodPhase, Step};

/// A disturbance, or its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum Disturbance {
    /// The API delivers changes late from now on: its clients may not know its newest objects.
    ApiSlow,
    ApiFast,
    /// The node receives no changes of this kind of object from now on.
    KindUnheard {
        kind: ObjectKind,
    },
    KindHeard {
        kind: ObjectKind,
    },
    /// The record (`vol_data.json`) does not say any more what the manager wrote into it.
    RecordDamaged {
        path: String,
    },
    /// The record is gone.
    RecordLost {
        path: String,
    },
    /// The mount answers nothing any more, as that of a FUSE daemon that died.
    MountDead {
        path: String,
    },
    /// The kernel was made to fail a step of the manager at a path. It may have been done.
    StepFailed {
        step: String,
        path: String,
    },
    /// Another node begins to use a volume, by its handle.
    UsedElsewhere {
        volume: String,
    },
}

impl Disturbance {
    pub(crate) const WORDS: &[&'static str] = &[
        "api_slow",
        "api_fast",
        "kind_unheard",
        "kind_heard",
        "record_damaged",
        "record_lost",
        "mount_dead",
        "step_failed",
        "used_elsewhere",
    ];
}

impl Step {
    /// The event for a step of a version 1 recording, in which disturbances and pods were steps like others.
    pub(crate) fn meant(self) -> Event {
        let pod = |pod: &str, to| Event::Pod(PodChange { pod: pod.to_owned(), to });
        let on = self.on.clone();
        let disturbance = match (self.action.as_str(), self.on.as_str()) {
            ("api", "slow") => Disturbance::ApiSlow,
            ("api", "fast") => Disturbance::ApiFast,
            ("damage", _) => Disturbance::RecordDamaged { path: on },
            ("lose", _) => Disturbance::RecordLost { path: on },
            ("kill_mount", _) => Disturbance::MountDead { path: on },
            ("use_elsewhere", _) => Disturbance::UsedElsewhere { volume: on },
            ("miss" | "hear", kind) => match (kind.parse(), self.action.as_str()) {
                (Ok(kind), "miss") => Disturbance::KindUnheard { kind },
                (Ok(kind), _) => Disturbance::KindHeard { kind },
                (Err(_), _) => return Event::Case(self),
            },
            ("fail", failed) => match failed.split_once(' ') {
                Some((step, path)) => {
                    Disturbance::StepFailed { step: step.to_owned(), path: path.to_owned() }
                }
                None => return Event::Case(self),
            },
            ("add_pod", name) => return pod(name, PodPhase::Added),
            ("terminate_pod", name) => return pod(name, PodPhase::Terminating),
            ("remove_pod", name) => return pod(name, PodPhase::Removed),
            ("set_state", state) => {
                return match state.split_once(' ') {
                    Some((name, "Running")) => pod(name, PodPhase::Running),
                    Some((name, "Terminating")) => pod(name, PodPhase::Terminating),
                    Some((name, "RuntimeGone")) => pod(name, PodPhase::RuntimeGone),
                    _ => Event::Case(self),
                };
            }
            _ => return Event::Case(self),
        };
        Event::Disturbed(disturbance)
    }
}
