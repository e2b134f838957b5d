//! Paths: one for each volume, the target is the driver's, and records are kept until the volume is undone.

use crate::csi::Request;
use crate::event::{Effect, EffectKind, Event, RpcStart, TraceLine};
use crate::object::PersistentVolume;
use crate::rule::place::{Place, parent};
use crate::rule::{Books, Checked, Report, Rest, Rule, Witness};

use super::damage::is_unidentifiable;

pub(super) static ONE_PATH_A_VOLUME: Rule = Rule {
    id: "INV-048",
    sentence: "a staging path belongs to one volume, a target to one volume and pod",
    witnesses: &[Witness::Rpc],
    check: Checked::Each(path_for_each_volume),
};

fn path_for_each_volume(books: &Books, line: &TraceLine, report: &mut Report) {
    let Event::RpcStart(start) = &line.event else { return };
    let volume = start.request().volume_id();
    if matches!(start.method.as_str(), "NodeStageVolume" | "NodePublishVolume") {
        report.tried();
    }
    let others = |path| books.volumes_at(path).filter(|(other, _)| *other != volume).map(|(_, known)| known);
    match start.method.as_str() {
        "NodeStageVolume" => {
            let path = start.request().staging_path();
            if others(path).any(|other| other.staged.contains_key(path)) {
                report.broken(&start.method, "staged at the path of another volume", path);
            }
            let elsewhere =
                books.volume(volume).is_some_and(|known| known.staged.keys().any(|staged| staged != path));
            if elsewhere {
                report.broken(&start.method, "staged at a second path", path);
            }
        }
        "NodePublishVolume" => {
            let path = start.request().target_path();
            if others(path).any(|other| other.published.contains_key(path)) {
                report.broken(&start.method, "published at the target of another volume", path);
            }
        }
        _ => {}
    }
}

pub(super) static TARGET_IS_THE_DRIVERS: Rule = Rule {
    id: "INV-049",
    sentence: "a target's parent and the staging directory are there before the call; the target is the driver's",
    witnesses: &[Witness::Rpc, Witness::File],
    check: Checked::Each(target_is_the_drivers),
};

fn target_is_the_drivers(books: &Books, line: &TraceLine, report: &mut Report) {
    let Event::RpcStart(start) = &line.event else { return };
    // A node that died may not have announced its last effect: that may be a directory that the books do not have.
    let announced_all = books.life == 0;
    match start.method.as_str() {
        "NodePublishVolume" => {
            report.tried();
            let target = start.request().target_path();
            if books.entries.contains_key(target) {
                report.broken(&start.method, "the target was made before the driver was asked", target);
            }
            if announced_all && Place::of(target).is_some() && !books.entries.contains_key(parent(target)) {
                report.broken(&start.method, "the target's parent was not there", target);
            }
        }
        "NodeStageVolume" => {
            report.tried();
            let staging = start.request().staging_path();
            if announced_all && Place::of(staging).is_some() && !books.entries.contains_key(staging) {
                report.broken(&start.method, "the staging directory was not there", staging);
            }
        }
        _ => {}
    }
}

pub(super) static METADATA_OUTLIVES: Rule = Rule {
    id: "INV-050",
    sentence: "what undoing a step takes is written down before the step and kept until it is undone",
    witnesses: &[Witness::Rpc, Witness::File],
    check: Checked::Each(metadata_outlives),
};

fn metadata_outlives(books: &Books, line: &TraceLine, report: &mut Report) {
    match &line.event {
        Event::RpcStart(start) => written_before(books, start, report),
        Event::Effect(effect) => kept_until_undone(books, effect, report),
        _ => {}
    }
}

fn written_before(books: &Books, start: &RpcStart, report: &mut Report) {
    let path = match start.method.as_str() {
        "NodeStageVolume" => start.request().staging_path(),
        "NodePublishVolume" => start.request().target_path(),
        _ => return,
    };
    let Some(place) = Place::of(path) else { return };
    report.tried();
    let metadata = place.metadata();
    // A node that died may not have announced its last effect: that may be the writing of this record.
    if books.life == 0 && !books.entries.contains_key(&metadata) {
        report.broken(&start.method, "called before its metadata was written", metadata);
    }
}

fn kept_until_undone(books: &Books, effect: &Effect, report: &mut Report) {
    if !matches!(effect.effect, EffectKind::Remove | EffectKind::Unlink | EffectKind::Rmdir) {
        return;
    }
    let steps = books.volumes.values().flat_map(|known| known.staged.keys().chain(known.published.keys()));
    for place in steps.filter_map(|path| Place::of(path)) {
        let metadata = place.metadata();
        // A record that was lost before cannot be removed by the manager.
        let lost = books.lost.contains(&metadata);
        let gone = metadata == effect.path || metadata.starts_with(&format!("{}/", effect.path));
        if gone && !lost {
            report.broken("", "metadata was removed before its step was undone", metadata);
            return;
        }
    }
}

pub(super) static NOTHING_REMAINS: Rule = Rule {
    id: "INV-051",
    sentence: "when all pods are gone nothing remains of any volume in the manager's tree",
    witnesses: &[Witness::Rpc, Witness::Kernel, Witness::File],
    check: Checked::AtRest(nothing_remains),
};

fn nothing_remains(books: &Books, rest: &Rest, report: &mut Report) {
    // The records of a path that the driver left mounted are rightly kept.
    if !rest.pods.is_empty() || any_path_is_mounted(books) {
        return;
    }
    if books.volumes.values().any(|known| !known.publish_requests.is_empty() || known.stage_request.is_some())
    {
        report.tried();
    }
    let remaining = books.entries.keys().filter(|path| belongs_to_a_volume(path));
    // A driver that does not stage leaves an empty directory behind, as the kubelet does.
    let tolerated = |path: &str| books.stages == Some(false) && is_staging_tree(path);
    let unidentifiable = unidentifiable_directories(books);
    let stays = |path: &str| tolerated(path) || unidentifiable.iter().any(|dir| path.starts_with(dir));
    if let Some(path) = remaining.into_iter().find(|path| !stays(path)) {
        report.broken("", "something of a volume was left in the manager's tree", path.as_str());
    }
}

/// The directories of targets that cannot be identified, or never could: a record may be damaged before the driver
/// was called.
fn unidentifiable_directories(books: &Books) -> Vec<&str> {
    let of_no_object = |dir: &&str| match Place::of(&format!("{dir}/mount")) {
        Some(Place::Target(of)) => books.object::<PersistentVolume>(of.inner).is_none(),
        _ => false,
    };
    let damaged = books.damaged.iter().map(|record| parent(record)).filter(of_no_object);
    let targets = books.volumes.iter().flat_map(|(volume, known)| {
        let unidentifiable = move |target: &&String| is_unidentifiable(books, volume, target);
        known.published.keys().filter(unidentifiable)
    });
    targets.map(|target| parent(target)).chain(damaged).collect()
}

/// Whether anything is mounted where a driver was ever asked to stage or publish.
fn any_path_is_mounted(books: &Books) -> bool {
    let mounted = |path: &str| books.mounts.contains_key(path);
    books.volumes.values().any(|known| {
        let staging = known.stage_request.as_ref().map(|sent| Request::of(sent).staging_path());
        staging.is_some_and(mounted) || known.publish_requests.keys().any(|target| mounted(target))
    })
}

/// Whether a path is below the directories that stay: of one volume and not of its plugin or driver.
fn belongs_to_a_volume(path: &str) -> bool {
    let below = |marker: &str, depth: usize| {
        path.split_once(marker).is_some_and(|(_, rest)| {
            let names: Vec<&str> = rest.split('/').filter(|name| !name.is_empty()).collect();
            names.len() >= depth
        })
    };
    if path.contains("/plugins/kubernetes.io/csi/volumeDevices/") {
        let kept_parents = ["/volumeDevices/publish/", "/volumeDevices/staging/"];
        return match kept_parents.iter().find(|marker| path.contains(**marker)) {
            Some(marker) => below(marker, 1),
            None => below("/volumeDevices/", 1) && !path.ends_with("/publish") && !path.ends_with("/staging"),
        };
    }
    below("/volumes/kubernetes.io~csi/", 1)
        || below("/volumeDevices/kubernetes.io~csi/", 1)
        || below("/volume-subpaths/", 1)
        || below("/plugins/kubernetes.io/csi/", 2)
}

fn is_staging_tree(path: &str) -> bool {
    path.contains("/plugins/kubernetes.io/csi/") && !path.contains("/volumeDevices")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::script::{breaks, keeps, passes_over, path};

    #[test]
    fn paths_are_not_shared() {
        let rule = &ONE_PATH_A_VOLUME;
        keeps(rule, "stage v1\nstage v2\npublish v1 a\npublish v1 b\npublish v2 a", &[]);
        let of_v1 = format!("{{\"stagingTargetPath\":\"{}\"}}", path("staging:v1"));
        breaks(rule, "staged at the path of another volume", &format!("stage v1\nstage v2 {of_v1}"), &[]);
        breaks(rule, "staged at a second path", "stage v1\nstage v1 {\"stagingTargetPath\":\"/x\"}", &[]);
        let target = format!("{{\"targetPath\":\"{}\"}}", path("target:v1/a"));
        breaks(
            rule,
            "published at the target of another volume",
            &format!("publish v1 a\npublish v2 a {target}"),
            &[],
        );
    }

    #[test]
    fn the_target_is_made_by_the_driver() {
        let rule = &TARGET_IS_THE_DRIVERS;
        keeps(rule, "mkdir staging:v1\nstage v1\nmkdir parent:v1/a\npublish v1 a", &[]);
        keeps(rule, "node kill\nnode start\nstage v1\npublish v1 a", &[]);
        breaks(rule, "the staging directory was not there", "stage v1", &[]);
        breaks(rule, "the target's parent was not there", "publish v1 a", &[]);
        breaks(
            rule,
            "the target was made before the driver was asked",
            "mkdir parent:v1/a\nmkdir target:v1/a\npublish v1 a",
            &[],
        );
    }

    #[test]
    fn metadata_is_there_from_before_to_after() {
        let rule = &METADATA_OUTLIVES;
        for (volume, staged) in [("v1", "data:v1"), ("b1", "data:b1")] {
            let published = format!("data:{volume}/a");
            let begin = format!("write {staged}\nstage {volume}\nwrite {published}\npublish {volume} a\n");
            let end = format!("unpublish {volume} a\nunstage {volume}\nremove {published}\nremove {staged}");
            keeps(rule, &format!("{begin}{end}"), &[]);
            let early = "metadata was removed before its step was undone";
            breaks(rule, early, &format!("{begin}remove {published}"), &[]);
            breaks(rule, early, &format!("{begin}unpublish {volume} a Internal\nremove {published}"), &[]);
            breaks(rule, "called before its metadata was written", &format!("stage {volume}"), &[]);
            keeps(rule, &format!("node kill\nnode start\nstage {volume}"), &[]);
        }
    }

    #[test]
    fn parents_may_stay_but_nothing_of_a_volume() {
        let rule = &NOTHING_REMAINS;
        let kept = "mkdir /kl/pods/uid-a/volumes/kubernetes.io~csi\nmkdir /kl/plugins/kubernetes.io/csi/d\n\
                    mkdir /kl/plugins/kubernetes.io/csi/volumeDevices/publish\n";
        passes_over(rule, kept, &[]);
        passes_over(rule, "mkdir parent:v1/a\nwrite data:v1/a\nremove data:v1/a\nrmdir parent:v1/a", &[]);
        let undone = "mkdir parent:v1/a\npublish v1 a\nunpublish v1 a\nrmdir parent:v1/a";
        keeps(rule, undone, &[]);
        passes_over(rule, undone, &["b"]);
        passes_over(rule, "capabilities\nmkdir staging:v1", &[]);
        passes_over(rule, "mkdir parent:v1/a\npublish v1 a\nmount target:v1/a\nunpublish v1 a", &[]);
        let damaged = "mkdir parent:v1/a\nwrite data:v1/a\nstep damage data:v1/a\n";
        passes_over(rule, damaged, &[]);
        let left = "something of a volume was left in the manager's tree";
        breaks(rule, left, "mkdir parent:v1/a\nwrite data:v1/a\nstep damage data:v1/b", &[]);
        let object = r#"api create PersistentVolume pv-v1 case {"spec":{"csi":{"volumeHandle":"v1"}}}"#;
        breaks(rule, left, &[damaged, object].concat(), &[]);
        for entry in
            ["parent:v1/a", "data:v1", "staging:v1", "parent:b1/a", "staging:b1", "data:b1", "link:b1/a"]
        {
            breaks(rule, left, &format!("capabilities STAGE_UNSTAGE_VOLUME\nmkdir {entry}"), &[]);
        }
    }
}
