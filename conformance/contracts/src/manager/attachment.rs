//! Attachment and the node's list of volumes in use: what keeps a volume from being detached under a pod.

use std::collections::BTreeSet;

use crate::event::{ApiChange, Client, Event, TraceLine, Verb};
use crate::object::{ApiObject, Attachment, CsiDriver, Node, PersistentVolume};
use crate::rule::{Books, Check, Checked, Report, Rule, Witness};

use super::damage::is_unidentifiable;
use super::staging::handle;

/// Whether a volume must be attached; false if the trace does not show it.
pub(super) fn must_be_attached(books: &Books, volume: &str) -> bool {
    let Some((_, volume)) = books.persistent_volume(volume) else { return false };
    books.object(volume.driver()).is_some_and(CsiDriver::requires_attach)
}

fn is_attached(books: &Books, volume: &str) -> bool {
    let Some((name, _)) = books.persistent_volume(volume) else { return false };
    books.attachments(name).any(|(_, attachment)| attachment.is_attached())
}

pub(super) fn is_in_use(books: &Books, volume: &str) -> bool {
    let listed = books.in_use.iter().flatten();
    listed.filter_map(|unique| handle(unique)).any(|listed| listed == volume)
}

/// The handles of the volumes in `volumesAttached` of the node's status.
pub(super) fn attached_to_node(books: &Books) -> BTreeSet<String> {
    listed_as_attached(books).map(str::to_owned).collect()
}

/// Whether a volume is in `volumesAttached` of the node's status.
pub(super) fn is_attached_to_node(books: &Books, volume: &str) -> bool {
    listed_as_attached(books).any(|listed| listed == volume)
}

fn listed_as_attached(books: &Books) -> impl Iterator<Item = &str> {
    let listed = books.objects().flat_map(|(_, node): (_, Node)| node.volumes_attached());
    listed.filter_map(handle)
}

/// Whether only one pod may have a volume at a time.
pub(super) fn is_for_one_pod(books: &Books, volume: &str) -> bool {
    let volume = books.persistent_volume(volume);
    volume.is_some_and(|(_, volume)| volume.access_modes().eq(["ReadWriteOncePod"]))
}

/// The volume that a stage or publish is about to begin for.
fn begins_for(line: &TraceLine) -> Option<(&str, &str)> {
    let Event::RpcStart(start) = &line.event else { return None };
    matches!(start.method.as_str(), "NodeStageVolume" | "NodePublishVolume")
        .then(|| (start.method.as_str(), start.request().volume_id()))
}

pub(super) static ATTACHED_BEFORE_USE: Rule = Rule {
    id: "INV-002",
    sentence: "an attachable volume is staged or published only after its attachment says attached",
    witnesses: &[Witness::Rpc, Witness::Api],
    check: Checked::Each(|books, line, report| {
        let Some((method, volume)) = begins_for(line) else { return };
        if !must_be_attached(books, volume) {
            return;
        }
        report.tried();
        if !is_attached(books, volume) {
            report.broken(method, "used before it was attached", volume);
        }
    }),
};

pub(super) static IN_USE_BEFORE_USE: Rule = Rule {
    id: "INV-005",
    sentence: "no call for an attachable volume before the node's volumesInUse names it",
    witnesses: &[Witness::Rpc, Witness::Api],
    check: Checked::Each(|books, line, report| {
        let Some((method, volume)) = begins_for(line) else { return };
        if !must_be_attached(books, volume) {
            return;
        }
        report.tried();
        if !is_in_use(books, volume) {
            report.broken(method, "used before the node reported it in use", volume);
        }
    }),
};

pub(super) static IN_USE_UNTIL_UNSTAGED: Rule = Rule {
    id: "INV-004",
    sentence: "a volume leaves volumesInUse only after it was unstaged and no pod holds it",
    witnesses: &[Witness::Rpc, Witness::Api],
    check: Checked::Each(in_use_until_unstaged),
};

fn in_use_until_unstaged(books: &Books, line: &TraceLine, report: &mut Report) {
    let Some(listed) = listed_by_node(line) else { return };
    let gone = books.in_use.iter().flatten().filter(|before| !listed.contains(before.as_str()));
    for unique in gone {
        report.tried();
        // A volume that was detached by force is not kept by the node's `volumesInUse`.
        let kept = handle(unique).filter(|volume| !books.forced.contains(*volume));
        if kept.is_some_and(|volume| may_be_here(books, volume)) {
            report.broken("", "reported as not in use while it was staged or published", unique.as_str());
        }
    }
}

/// Whether a volume is or may be staged or published, at a path that the manager can identify.
pub fn may_be_here(books: &Books, volume: &str) -> bool {
    let known = books.volume(volume).into_iter();
    let mut paths = known.flat_map(|known| known.staged.keys().chain(known.published.keys()));
    paths.any(|path| !is_unidentifiable(books, volume, path))
}

/// The unique names in `volumesInUse`, if this line is a change of them by the node itself.
fn listed_by_node(line: &TraceLine) -> Option<BTreeSet<&str>> {
    let (change, node) = line.change_of::<Node>()?;
    node.volumes_in_use().filter(|_| change.by == Client::Node)
}

pub(super) static LISTED_WHEN_KNOWN: Rule = Rule {
    id: "INV-044",
    sentence: "a node that starts again writes volumesInUse only when its books have what may be there",
    witnesses: &[Witness::Rpc, Witness::Api, Witness::Manager],
    check: Checked::Each(listed_when_known),
};

fn listed_when_known(books: &Books, line: &TraceLine, report: &mut Report) {
    let Some(list) = listed_by_node(line).filter(|_| books.life > 0) else { return };
    report.tried();
    // A volume in the list is reported, even if an earlier life has put it there.
    let listed = |volume: &str| list.iter().any(|unique| handle(unique) == Some(volume));
    let in_books = |volume: &str| {
        let mut entries = books.actual.keys().filter_map(|key| key.strip_prefix("volume "));
        entries.any(|unique| handle(unique) == Some(volume))
    };
    let unknown = books.volumes.keys().find(|volume| {
        may_be_here(books, volume) && must_be_attached(books, volume) && !in_books(volume) && !listed(volume)
    });
    if let Some(volume) = unknown {
        report.broken(
            "",
            "the list was written without it before the books had every volume",
            volume.as_str(),
        );
    }
}

pub(super) static ATTACHMENTS_ARE_NOT_OURS: Rule = Rule {
    id: "INV-008",
    sentence: "the node creates and deletes no VolumeAttachment",
    witnesses: &[Witness::Api],
    check: Checked::Each(|_, line, report| {
        let Some((change, _)) = line.change_of::<Attachment>() else { return };
        report.tried();
        if change.by == Client::Node && matches!(change.verb, Verb::Create | Verb::Delete) {
            report.broken("", "the node made or removed an attachment", change.object.as_str());
        }
    }),
};

pub(super) static ONE_POD_ONLY: Rule = Rule {
    id: "INV-035",
    sentence: "a volume that is ReadWriteOncePod only is published for one pod at a time",
    witnesses: &[Witness::Rpc, Witness::Api],
    check: Checked::Each(single_pod),
};

fn single_pod(books: &Books, line: &TraceLine, report: &mut Report) {
    let Event::RpcStart(start) = &line.event else { return };
    if start.method != "NodePublishVolume" {
        return;
    }
    let volume = start.request().volume_id();
    if !is_for_one_pod(books, volume) {
        return;
    }
    report.tried();
    let target = start.request().target_path();
    let mut targets = books.volume(volume).into_iter().flat_map(|known| known.published.keys());
    let other = targets.find(|other| *other != target && !is_unidentifiable(books, volume, other));
    if let Some(other) = other {
        report.broken(&start.method, "published for a second pod", other.as_str());
    }
}

pub(super) static DETACHED_WHEN_UNUSED: Rule = Rule {
    id: "INV-078",
    sentence: "nobody begins to detach a volume while its node reports it in use, but for a node that is lost",
    witnesses: &[Witness::Rpc, Witness::Api],
    check: Checked::With(|| Box::new(DetachedWhenUnused::default())),
};

/// Attachments that were deleted while no node used their volume, or while the node was lost. A deletion is not taken
/// back: the controller retries the detach until it succeeds, and a node that comes to want the volume meanwhile
/// waits for its next attachment.
#[derive(Default)]
struct DetachedWhenUnused {
    going: BTreeSet<String>,
    /// Volumes that the node began to report in use when its status did not say attached any more: by then
    /// the controller may already have read the status for the last time.
    too_late: BTreeSet<String>,
}

impl Check for DetachedWhenUnused {
    fn event(&mut self, books: &Books, line: &TraceLine, report: &mut Report) {
        if let Some((change, attachment)) = line.change_of() {
            self.take_deletion(books, change, attachment);
        }
        if let Some((_, node)) = line.change_of() {
            self.reported(books, node);
        }
        let Event::RpcStart(start) = &line.event else { return };
        let volume = start.request().volume_id();
        let detaches = start.method == "ControllerUnpublishVolume" && !books.any_node_is_lost();
        if detaches {
            report.tried();
        }
        if detaches && self.is_kept(books, volume) && !self.is_going(books, volume) {
            report.broken(&start.method, "detached while its node reported it in use", volume);
        }
    }
}

impl DetachedWhenUnused {
    fn take_deletion(&mut self, books: &Books, change: &ApiChange, attachment: Attachment<'_>) {
        if !attachment.is_being_deleted() {
            self.going.remove(&change.object);
            return;
        }
        let may_go = |handle| books.any_node_is_lost() || !self.is_kept(books, handle);
        if deleted_handle(books, change).is_some_and(may_go) {
            self.going.insert(change.object.clone());
        }
    }

    fn reported(&mut self, books: &Books, node: Node<'_>) {
        let Some(listed) = node.volumes_in_use() else { return };
        let listed: BTreeSet<&str> = listed.into_iter().filter_map(handle).collect();
        self.too_late.retain(|volume| listed.contains(volume.as_str()));
        let new = listed
            .into_iter()
            .filter(|volume| !is_in_use(books, volume) && !is_attached_to_node(books, volume));
        self.too_late.extend(new.map(str::to_owned));
    }

    /// Whether a volume was in the node's `volumesInUse` in time.
    fn is_kept(&self, books: &Books, volume: &str) -> bool {
        is_in_use(books, volume) && !(books.slow_api && self.too_late.contains(volume))
    }

    fn is_going(&self, books: &Books, volume: &str) -> bool {
        let Some((name, _)) = books.persistent_volume(volume) else { return false };
        books.attachments(name).any(|(attachment, _)| self.going.contains(attachment))
    }
}

pub(super) static NOT_ATTACHED_WHEN_DETACHING: Rule = Rule {
    id: "INV-079",
    sentence: "a volume leaves the node's volumesAttached before it is detached",
    witnesses: &[Witness::Rpc, Witness::Api],
    check: Checked::Each(not_attached_when_detaching),
};

/// A detach begins with the deletion of the attachment: the call to the driver may come long after that.
fn not_attached_when_detaching(books: &Books, line: &TraceLine, report: &mut Report) {
    let (by, volume) = match &line.event {
        Event::RpcStart(start) if start.method == "ControllerUnpublishVolume" => {
            (start.method.as_str(), start.request().volume_id())
        }
        Event::Api(change) => match deleted_handle(books, change) {
            Some(volume) => ("", volume),
            None => return,
        },
        _ => return,
    };
    report.tried();
    if is_attached_to_node(books, volume) {
        report.broken(by, "detached while the node's status said attached", volume);
    }
}

/// The handle of the volume whose attachment a change is the first to end.
fn deleted_handle<'a>(books: &'a Books, change: &ApiChange) -> Option<&'a str> {
    let attachment: Attachment = change.of()?;
    let known: Attachment = books.object(&change.object)?;
    let ends = change.verb == Verb::Delete || attachment.is_being_deleted();
    let volume: PersistentVolume = books.object(known.volume_name()?)?;
    (ends && !known.is_being_deleted()).then(|| volume.handle())
}

pub(super) static ATTACHED_TO_ONE: Rule = Rule {
    id: "INV-080",
    sentence: "a volume for one node is not attached to two",
    witnesses: &[Witness::Api],
    check: Checked::Each(attached_to_one),
};

fn attached_to_one(books: &Books, line: &TraceLine, report: &mut Report) {
    let Some((change, attachment)) = line.change_of::<Attachment>() else { return };
    // An attachment that is being deleted is uncertain: its volume may be detached already.
    let is_certain = |attachment: Attachment<'_>| attachment.is_attached() && !attachment.is_being_deleted();
    if change.verb == Verb::Delete || !is_certain(attachment) {
        return;
    }
    report.tried();
    let known = books.object(&change.object).unwrap_or(attachment);
    let Some(volume) = known.volume_name() else { return };
    let shared = books.object(volume).is_none_or(|volume: PersistentVolume| {
        volume.access_modes().any(|mode| mode == "ReadWriteMany" || mode == "ReadOnlyMany")
    });
    let elsewhere = books
        .attachments(volume)
        .any(|(name, other)| name != change.object && other.node() != known.node() && is_certain(other));
    if elsewhere && !shared {
        report.broken("", "attached to two nodes", volume);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::script::{breaks, keeps, passes_over};

    const PV: &str = r#"
        api create CSIDriver d.example.com case {"spec":{"attachRequired":true}}
        api create PersistentVolume pv-v1 case {"spec":{"accessModes":["ReadWriteOncePod"],"csi":{"driver":"d.example.com","volumeHandle":"v1"}}}
    "#;
    const LOST: &str =
        r#"api update Node node-1 case {"spec":{"taints":[{"key":"node.kubernetes.io/out-of-service"}]}}"#;
    const FOUND: &str = r#"api update Node node-1 case {"spec":{"taints":[]}}"#;
    const ATTACHED: &str = r#"
        api create VolumeAttachment csi-1 controller {"spec":{"source":{"persistentVolumeName":"pv-v1"}}}
        api update VolumeAttachment csi-1 controller {"status":{"attached":true}}
    "#;

    #[test]
    fn attached_comes_first() {
        let rule = &ATTACHED_BEFORE_USE;
        keeps(rule, &[PV, ATTACHED, "stage v1\npublish v1 a"].concat(), &[]);
        passes_over(rule, "stage v1", &[]);
        breaks(rule, "used before it was attached", &[PV, "stage v1"].concat(), &[]);
        let gone = "api delete VolumeAttachment csi-1 controller\npublish v1 a";
        breaks(rule, "used before it was attached", &[PV, ATTACHED, gone].concat(), &[]);
    }

    #[test]
    fn in_use_brackets_the_calls() {
        keeps(&IN_USE_BEFORE_USE, &[PV, "in-use v1\nstage v1"].concat(), &[]);
        let early = "used before the node reported it in use";
        breaks(&IN_USE_BEFORE_USE, early, &[PV, "in-use v2\nstage v1"].concat(), &[]);

        let rule = &IN_USE_UNTIL_UNSTAGED;
        keeps(rule, "in-use v1 v2\nstage v1\nin-use v1\nunstage v1\nin-use", &[]);
        let still = "reported as not in use while it was staged or published";
        breaks(rule, still, "in-use v1\nstage v1\nin-use", &[]);
        breaks(rule, still, "in-use v1\npublish v1 a Aborted\nin-use", &[]);

        let taken = ["in-use v1\nstage v1\nnode kill\n", LOST, "\ndetach v1 Aborted\n", FOUND].concat();
        keeps(rule, &[&taken, "\nnode start\nin-use"].concat(), &[]);
        breaks(rule, still, &[&taken, "\nnode start\nin-use v1\nstage v1\nin-use"].concat(), &[]);
        let not_taken = taken.replace("detach v1 Aborted", "");
        breaks(rule, still, &[&not_taken, "\nnode start\nin-use"].concat(), &[]);
    }

    #[test]
    fn the_list_waits_for_the_books() {
        let rule = &LISTED_WHEN_KNOWN;
        let died = [PV, "in-use v1\nstage v1\nnode kill\nnode start\n"].concat();
        keeps(rule, &[&died, "state v1 DeviceMountUncertain\nin-use v1"].concat(), &[]);
        keeps(rule, &[&died, "in-use v1"].concat(), &[]);
        keeps(rule, &[&died, "unstage v1\nin-use"].concat(), &[]);
        passes_over(rule, &[PV, "stage v1\nin-use v1"].concat(), &[]);
        let early = "the list was written without it before the books had every volume";
        breaks(rule, early, &[&died, "in-use"].concat(), &[]);
        breaks(rule, early, &[&died, "state v2 DeviceMountUncertain\nin-use"].concat(), &[]);
    }

    #[test]
    fn attachments_belong_to_the_controller() {
        let rule = &ATTACHMENTS_ARE_NOT_OURS;
        keeps(rule, ATTACHED, &[]);
        let ours = "the node made or removed an attachment";
        breaks(rule, ours, "api create VolumeAttachment csi-1 node", &[]);
        breaks(rule, ours, "api delete VolumeAttachment csi-1 node", &[]);
    }

    #[test]
    fn second_pod_of_a_single_pod_volume_is_refused() {
        let rule = &ONE_POD_ONLY;
        keeps(rule, &[PV, "publish v1 a\npublish v1 a\nunpublish v1 a\npublish v1 b"].concat(), &[]);
        let second = "published for a second pod";
        breaks(rule, second, &[PV, "publish v1 a\npublish v1 b"].concat(), &[]);
        breaks(rule, second, &[PV, "publish v1 a Unavailable\npublish v1 b"].concat(), &[]);
    }

    #[test]
    fn a_volume_in_use_is_not_detached() {
        let rule = &DETACHED_WHEN_UNUSED;
        keeps(rule, "in-use v1 v2\nin-use v2\ndetach v1", &[]);
        breaks(rule, "detached while its node reported it in use", "in-use v1 v2\ndetach v1", &[]);
        let going =
            r#"api update VolumeAttachment csi-1 controller {"metadata":{"deletionTimestamp":"now"}}"#;
        let begun =
            [PV, ATTACHED, "in-use\n", going, "\ndetach v1 Unavailable\nin-use v1\n", going, "\n"].concat();
        keeps(rule, &[&begun, "detach v1"].concat(), &[]);
        let used = "detached while its node reported it in use";
        breaks(rule, used, &[PV, ATTACHED, "in-use v1\n", going, "\ndetach v1"].concat(), &[]);
        let over = "detach v1\napi delete VolumeAttachment csi-1 controller";
        breaks(rule, used, &[&begun, over, ATTACHED, "detach v1"].concat(), &[]);
        passes_over(rule, &format!("in-use v1\n{LOST}\ndetach v1"), &[]);
        let begun = [PV, ATTACHED, "in-use v1\n", LOST, going, FOUND].join("\n");
        keeps(rule, &[&begun, "\ndetach v1"].concat(), &[]);
        breaks(rule, used, &[PV, ATTACHED, "in-use v1\n", LOST, FOUND, going, "\ndetach v1"].join("\n"), &[]);
        // An API that takes its time.
        let attached = r#"api update Node node-1 controller {"status":{"volumesAttached":[{"name":"kubernetes.io/csi/d.example.com^v1"}]}}"#;
        keeps(rule, "step api slow\nin-use\nin-use v1\ndetach v1", &[]);
        breaks(rule, used, &["step api slow\n", attached, "in-use v1\ndetach v1"].join("\n"), &[]);
        breaks(rule, used, "in-use\nin-use v1\ndetach v1", &[]);
    }

    #[test]
    fn the_status_says_so_before_detaching() {
        let rule = &NOT_ATTACHED_WHEN_DETACHING;
        let attached = |volumes: &str| {
            format!("api update Node node-1 controller {{\"status\":{{\"volumesAttached\":[{volumes}]}}}}\n")
        };
        let v1 = r#"{"name":"kubernetes.io/csi/d.example.com^v1"}"#;
        keeps(rule, &(attached(v1) + &attached("") + "detach v1"), &[]);
        keeps(rule, &(attached(v1) + "detach v2"), &[]);
        let early = "detached while the node's status said attached";
        breaks(rule, early, &(attached(v1) + "detach v1"), &[]);
        // The controller detaches also while the node is down.
        breaks(rule, early, &(attached(v1) + "node kill\ndetach v1"), &[]);
    }

    #[test]
    fn second_node_of_a_single_node_volume_is_refused() {
        let rule = &ATTACHED_TO_ONE;
        let attachment = |name: &str, node: &str, attached: bool| {
            format!(
                r#"api update VolumeAttachment {name} controller {{"spec":{{"nodeName":"{node}","source":{{"persistentVolumeName":"pv-v1"}}}},"status":{{"attached":{attached}}}}}"#
            ) + "\n"
        };
        let first = PV.to_owned() + &attachment("x", "node-1", true);
        keeps(rule, &(first.clone() + &attachment("y", "node-2", false)), &[]);
        keeps(
            rule,
            &(first.clone() + &attachment("x", "node-1", false) + &attachment("y", "node-2", true)),
            &[],
        );
        let going = r#"api update VolumeAttachment x controller {"metadata":{"deletionTimestamp":"now"}}"#;
        keeps(rule, &(first.clone() + going + "\n" + &attachment("y", "node-2", true)), &[]);
        let second = attachment("y", "node-2", true);
        breaks(rule, "attached to two nodes", &(first.clone() + &second), &[]);
        breaks(rule, "attached to two nodes", &(first + LOST + "\n" + &second), &[]);
    }
}
