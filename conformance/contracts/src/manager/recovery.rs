//! A node that starts again: it undoes nothing before it knows enough, and its mounts do not wait for that.

use std::collections::BTreeSet;

use crate::event::{Edge, Event, OperationName, Recovery, Role, StateChange, TraceLine, World};
use crate::rule::place::Place;
use crate::rule::{Books, Check, Checked, Report, Rest, Rule, Witness};

use super::damage::is_unidentifiable;

/// Operations that take something away.
const UNDOS: &[OperationName] =
    &[OperationName::Unmount, OperationName::Unmap, OperationName::UnmountDevice, OperationName::UnmapDevice];

/// What the present life of the node knows.
#[derive(Debug, Default)]
pub(super) struct Recovering {
    /// Whether its pods are known.
    pods: bool,
    /// The volumes that it found on disk and has not compared with the node's object.
    unread: BTreeSet<String>,
}

impl Recovering {
    /// Whether it may not unmount anything yet.
    pub(super) fn lasts(&self) -> bool {
        !self.pods || !self.unread.is_empty()
    }

    /// Takes in an event; `books` have the state before it.
    pub(super) fn event(&mut self, books: &Books, line: &TraceLine) {
        match &line.event {
            Event::Process(edge) if edge.who == Role::Node => *self = Self::default(),
            Event::Recovered(recovered) => match recovered.what {
                Recovery::Volumes => {}
                Recovery::Pods => self.pods = true,
                Recovery::Node => self.unread.clear(),
            },
            Event::State(change) if is_found_on_disk(books, change) => {
                self.unread.extend(volume_of(change).map(str::to_owned));
            }
            Event::State(change) if change.to.is_empty() => {
                if let Some(volume) = change.key.strip_prefix("volume ") {
                    self.unread.remove(volume);
                }
            }
            _ => {}
        }
    }
}

/// The volume in the key of an entry.
fn volume_of(change: &StateChange) -> Option<&str> {
    change.key.rsplit(' ').next()
}

/// Whether the manager found a volume on disk: no operation of this life has led to its entry.
fn is_found_on_disk(books: &Books, change: &StateChange) -> bool {
    let by_an_operation = || books.operations.iter().any(|edge| Some(&*edge.volume) == volume_of(change));
    change.world == World::Actual
        && change.from.is_empty()
        && change.to.contains("Uncertain")
        && !by_an_operation()
}

pub(super) static UNDONE_WHEN_KNOWN: Rule = Rule {
    id: "INV-039",
    sentence: "a node undoes nothing before it knows its pods and has compared what it found with its object",
    witnesses: &[Witness::Manager, Witness::Operations, Witness::Recovery],
    check: Checked::With(|| Box::new(UndoneWhenKnown::default())),
};

#[derive(Default)]
struct UndoneWhenKnown(Recovering);

impl Check for UndoneWhenKnown {
    fn event(&mut self, books: &Books, line: &TraceLine, report: &mut Report) {
        self.0.event(books, line);
        let Event::Operation(edge) = &line.event else { return };
        if edge.edge != Edge::Start || !UNDOS.contains(&edge.name) {
            return;
        }
        report.tried();
        let detail = || format!("{} {}", edge.name, edge.volume);
        if !self.0.pods {
            report.broken("", "something was undone before all pods were known", detail());
        } else if self.0.lasts() {
            report.broken("", "something was undone before the node's object was read", detail());
        }
    }
}

pub(super) static UNDONE_WITHOUT_ATTACHMENT: Rule = Rule {
    id: "INV-082",
    sentence: "a volume that was taken from a lost node by force is unpublished and unstaged there all the same",
    witnesses: &[Witness::Rpc, Witness::Api],
    check: Checked::AtRest(undone_without_attachment),
};

fn undone_without_attachment(books: &Books, rest: &Rest, report: &mut Report) {
    for volume in &books.forced {
        let Some(known) = books.volume(volume) else { continue };
        if known.stage_request.is_none() && known.publish_requests.is_empty() {
            continue;
        }
        report.tried();
        let identifiable = |path: &&String| !is_unidentifiable(books, volume, path);
        let of_a_pod = |target: &&String| {
            Place::of(target).and_then(Place::pod).is_some_and(|pod| rest.pods.contains(pod))
        };
        let mut targets = known.published.keys().filter(identifiable);
        if let Some(target) = targets.find(|target| !of_a_pod(target)) {
            report.broken(
                "NodeUnpublishVolume",
                "a target of a volume taken by force was not unpublished",
                target,
            );
        } else if rest.pods.is_empty() && known.staged.keys().any(|path| identifiable(&path)) {
            report.broken("NodeUnstageVolume", "a volume taken by force was not unstaged", volume);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::script::{breaks, keeps, passes_over};

    const BEFORE_PODS: &str = "something was undone before all pods were known";
    const BEFORE_NODE: &str = "something was undone before the node's object was read";

    #[test]
    fn nothing_is_undone_before_the_pods_are_known() {
        let rule = &UNDONE_WHEN_KNOWN;
        let restart = "node kill\nnode start\nrecovered volumes\n";
        let unmount = "op start volume_unmount v1/a";
        keeps(rule, &format!("{restart}recovered pods\n{unmount}"), &[]);
        breaks(rule, BEFORE_PODS, &format!("{restart}{unmount}"), &[]);
        breaks(rule, BEFORE_PODS, &format!("recovered pods\n{restart}{unmount}"), &[]);
        passes_over(rule, &format!("{restart}op start volume_mount v1/a"), &[]);
    }

    #[test]
    fn nothing_is_undone_before_the_node_was_read_for_what_was_found() {
        let rule = &UNDONE_WHEN_KNOWN;
        let found =
            "node kill\nnode start\nstate v1 DeviceMountUncertain\nrecovered volumes\nrecovered pods\n";
        let unstage = "op start unmount_device v1";
        keeps(rule, &format!("{found}recovered node\n{unstage}"), &[]);
        breaks(rule, BEFORE_NODE, &format!("{found}{unstage}"), &[]);
        // Another volume waits as well, and so does one that is found later.
        breaks(rule, BEFORE_NODE, &format!("{found}op start volume_unmount v2/a"), &[]);
        let later = "recovered node\nstate v2/a VolumeMountUncertain\n";
        breaks(rule, BEFORE_NODE, &format!("{found}{later}{unstage}"), &[]);
        // One that an operation made uncertain was not found.
        let made = "recovered node\nop start volume_mount v2/a\nstate v2/a VolumeMountUncertain\n";
        keeps(rule, &format!("{found}{made}{unstage}"), &[]);
        keeps(rule, &format!("{found}state v1 -\nop start volume_unmount v2/a"), &[]);
    }

    #[test]
    fn volume_taken_by_force_is_undone_without_an_attachment() {
        let rule = &UNDONE_WITHOUT_ATTACHMENT;
        let lost =
            r#"api update Node node-1 case {"status":{"conditions":[{"type":"Ready","status":"False"}]}}"#;
        let taken = format!("stage v1\npublish v1 a\n{lost}\ndetach v1\n");
        let left = "a target of a volume taken by force was not unpublished";
        keeps(rule, &format!("{taken}unpublish v1 a\nunstage v1"), &[]);
        breaks(rule, left, &taken, &[]);
        breaks(rule, "a volume taken by force was not unstaged", &format!("{taken}unpublish v1 a"), &[]);
        keeps(rule, &taken, &["a"]);
        passes_over(rule, "stage v1\npublish v1 a\nunpublish v1 a\ndetach v1", &[]);
    }
}
