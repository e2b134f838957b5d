//! The manager shows a pod only the files of its own volumes, and removes none of them.

use crate::csi::Request;
use crate::event::{Effect, EffectKind, Event, Mount, TraceLine};
use crate::object::{CsiDriver, PersistentVolume};
use crate::rule::place::{Place, parent};
use crate::rule::{Books, Check, Checked, Report, Rest, Rule, Witness};

use super::staging::{handle, pod_and_handle};

/// Effects that remove a path.
const REMOVALS: &[EffectKind] =
    &[EffectKind::Umount, EffectKind::Rmdir, EffectKind::Remove, EffectKind::Unlink];

fn removal(line: &TraceLine) -> Option<&Effect> {
    match &line.event {
        Event::Effect(effect) if REMOVALS.contains(&effect.effect) => Some(effect),
        _ => None,
    }
}

/// Whether a path is this one or below it.
fn is_within(path: &str, top: &str) -> bool {
    path.strip_prefix(top).is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || top == "/")
}

pub(super) static WANTED_STAYS_ON_DISK: Rule = Rule {
    id: "INV-045",
    sentence: "of a volume that its pod wants nothing is taken away but by an operation on it, read back or not",
    witnesses: &[Witness::Rpc, Witness::File, Witness::Manager, Witness::Operations],
    check: Checked::Each(wanted_stays_on_disk),
};

fn wanted_stays_on_disk(books: &Books, line: &TraceLine, report: &mut Report) {
    let Some(effect) = removal(line) else { return };
    report.tried();
    for (volume, known) in &books.volumes {
        let targets = known.publish_requests.keys();
        let here = targets.filter(|target| {
            Place::of(target).and_then(Place::pod).is_some()
                && (is_within(&effect.path, parent(target)) || is_within(target, &effect.path))
        });
        for pod in here.filter_map(|target| Place::of(target).and_then(Place::pod)) {
            // The parent of a block volume's targets is shared by its pods.
            let its_own = effect.path.contains(pod);
            let wanted = books.desired.keys().any(|key| pod_and_handle(key) == Some((pod, volume)));
            let at_work = books.operations.iter().any(|edge| handle(&edge.volume) == Some(volume));
            if its_own && wanted && !at_work {
                report.broken("", "taken away from a pod that wants it", effect.path.as_str());
            }
        }
    }
}

pub(super) static NOT_THROUGH_A_MOUNT: Rule = Rule {
    id: "INV-047",
    sentence: "no directory is removed at, or together with, what is mounted in it",
    witnesses: &[Witness::Kernel, Witness::File],
    check: Checked::Each(|books, line, report| {
        let Some(effect) = removal(line).filter(|effect| effect.effect != EffectKind::Umount) else { return };
        report.tried();
        let mut mounts = books.mounts.range(effect.path.clone()..).map(|(at, _)| at);
        let below = mounts.find(|at| !at.starts_with(&effect.path) || is_within(at, &effect.path));
        if let Some(mount) = below.filter(|at| is_within(at, &effect.path)) {
            report.broken("", "removed with a mount in it", mount.as_str());
        }
    }),
};

pub(super) static NOTHING_OUTSIDE: Rule = Rule {
    id: "INV-068",
    sentence: "a sub-path shows a part of its volume and nothing else",
    witnesses: &[Witness::Kernel],
    check: Checked::Each(|books, line, report| {
        let Event::MountAdd(mount) = &line.event else { return };
        let Some(volumes) = volumes_of_sub_path(&mount.target) else { return };
        // The path of a volume that is not mounted below its pod, such as a host path, is not in the trace.
        let mut shown = shown_below(books, &volumes).peekable();
        if shown.peek().is_none() {
            return;
        }
        report.tried();
        if !shown.any(|volume| shows_part_of(mount, volume)) {
            report.broken("", "a sub-path shows what is not in its volume", mount.target.as_str());
        }
    }),
};

/// The directory of a pod's volumes and the volume's directory name, from the target of a sub-path's mount.
fn volumes_of_sub_path(target: &str) -> Option<(String, &str)> {
    let (pod, rest) = target.split_once("/volume-subpaths/")?;
    Some((format!("{pod}/volumes/"), rest.split('/').next()?))
}

/// The mounts through which a pod has a volume, and those in it.
fn shown_below<'a>(
    books: &'a Books,
    (volumes, inner): &(String, &'a str),
) -> impl Iterator<Item = &'a Mount> {
    let (volumes, inner) = (volumes.clone(), *inner);
    let start = volumes.clone();
    books
        .mounts
        .range(start..)
        .take_while({
            let volumes = volumes.clone();
            move |(at, _)| at.starts_with(&volumes)
        })
        .filter(move |(at, _)| at[volumes.len()..].split('/').nth(1) == Some(inner))
        .flat_map(|(_, stack)| stack)
}

fn shows_part_of(mount: &Mount, volume: &Mount) -> bool {
    mount.dev == volume.dev && is_within(&mount.root, &volume.root)
}

pub(super) static NOT_OURS_TO_OWN: Rule = Rule {
    id: "INV-074",
    sentence: "no file changes hands that the driver gives away itself, that is read-only, or that the policy keeps",
    witnesses: &[Witness::Rpc, Witness::File, Witness::Api],
    check: Checked::Each(|books, line, report| {
        let Event::Effect(effect) = &line.event else { return };
        let mut volumes = books.volumes.iter();
        let published = volumes.find_map(|(id, known)| Some((id, known.publish_requests.get(&effect.path)?)));
        let Some((volume, request)) = published.filter(|_| effect.effect == EffectKind::Chown) else {
            return;
        };
        report.tried();
        let delegated = Request::of(request).capability().mount_group();
        if Request::of(request).is_readonly() {
            report.broken("", "files of a read-only volume were given away", effect.path.as_str());
        } else if !delegated.is_empty() {
            report.broken(
                "",
                "files were given away that the driver gives away itself",
                effect.path.as_str(),
            );
        } else if is_kept(books, volume) {
            report.broken("", "files were given away against the driver's policy", effect.path.as_str());
        }
    }),
};

/// Whether the driver's fsGroupPolicy leaves a volume's files as they are; `false` if the trace does not have it.
fn is_kept(books: &Books, volume: &str) -> bool {
    let Some((_, volume)) = books.persistent_volume(volume) else { return false };
    match books.object(volume.driver()).map(CsiDriver::fs_group_policy) {
        Some("None") => true,
        Some("ReadWriteOnceWithFSType") => {
            let mut modes = volume.access_modes();
            let one_writer = modes.any(|mode| mode == "ReadWriteOnce" || mode == "ReadWriteOncePod");
            volume.fs_type().is_empty() || !one_writer
        }
        _ => false,
    }
}

pub(super) static EMPTY_WITH_ITS_POD: Rule = Rule {
    id: "INV-076",
    sentence: "an emptyDir keeps what is in it as long as its pod wants it, and no longer",
    witnesses: &[Witness::File, Witness::Manager, Witness::Operations],
    check: Checked::With(|| Box::new(EmptyWithItsPod)),
};

struct EmptyWithItsPod;

/// The pod and the name of the emptyDir that a path is, or is in.
fn empty_dir(path: &str) -> Option<(&str, &str)> {
    let (before, after) = path.split_once("/volumes/kubernetes.io~empty-dir/")?;
    let name = after.split('/').next().filter(|name| !name.is_empty())?;
    Some((before.rsplit('/').next()?, name))
}

impl Check for EmptyWithItsPod {
    fn event(&mut self, books: &Books, line: &TraceLine, report: &mut Report) {
        let Some(effect) = removal(line) else { return };
        let Some((pod, name)) = empty_dir(&effect.path) else { return };
        report.tried();
        let volume = format!("kubernetes.io/empty-dir/{pod}-{name}");
        let at_work = books.operations.iter().any(|edge| edge.volume == volume);
        if books.desired.contains_key(&format!("pod {pod} {volume}")) && !at_work {
            report.broken("", "an emptyDir was taken away from a pod that wants it", effect.path.as_str());
        }
    }

    fn rest(&mut self, books: &Books, rest: &Rest, report: &mut Report) {
        let outlived = |path: &&String| empty_dir(path).is_some_and(|(pod, _)| !rest.pods.contains(pod));
        if let Some(path) = books.entries.keys().find(outlived) {
            report.broken("", "an emptyDir outlived its pod", path.as_str());
        }
    }
}

pub(super) static LOCAL_IS_THE_USERS: Rule = Rule {
    id: "INV-077",
    sentence: "the directory that a local or host path volume names is never removed or unmounted, nor is anything in it",
    witnesses: &[Witness::File, Witness::Api],
    check: Checked::Each(|books, line, report| {
        let Some(effect) = removal(line) else { return };
        let named = books.objects().flat_map(|(_, volume): (_, PersistentVolume)| volume.host_paths());
        let mut named = named.peekable();
        if named.peek().is_none() {
            return;
        }
        report.tried();
        if named.any(|path| is_within(&effect.path, path)) {
            report.broken("", "something of the user's was taken away", effect.path.as_str());
        }
    }),
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::script::{breaks, keeps, passes_over};

    #[test]
    fn wanted_volume_stays_on_disk() {
        let rule = &WANTED_STAYS_ON_DISK;
        let taken = "taken away from a pod that wants it";
        for volume in ["v1", "b1"] {
            let had = format!("publish {volume} a\nnode kill\nnode start\nwants {volume}/a yes\n");
            let at = if volume == "v1" { "parent:v1/a" } else { "target:b1/a" };
            breaks(rule, taken, &format!("{had}rmdir {at}"), &[]);
            breaks(rule, taken, &format!("{had}effect umount target:{volume}/a"), &[]);
            keeps(rule, &format!("{had}wants {volume}/a -\nrmdir {at}"), &[]);
            keeps(rule, &format!("{had}rmdir parent:v2/a\nrmdir target:b2/a\nrmdir target:{volume}/b"), &[]);
            keeps(rule, &format!("{had}op start volume_mount {volume}/a\nrmdir {at}"), &[]);
        }
        breaks(rule, taken, "publish v1 a\nwants v1/a yes\nremove /kl/pods/uid-a", &[]);
    }

    #[test]
    fn nothing_is_removed_through_a_mount() {
        let rule = &NOT_THROUGH_A_MOUNT;
        keeps(
            rule,
            "mount target:v1/a\numount target:v1/a\nrmdir parent:v2/a\nrmdir /kl/pods/uid-a/vol",
            &[],
        );
        let through = "removed with a mount in it";
        breaks(rule, through, "mount target:v1/a\nrmdir parent:v1/a", &[]);
        breaks(rule, through, "mount target:v1/a\nremove target:v1/a", &[]);
        breaks(rule, through, "mount /kl/pods/uid-a.b\nmount target:v1/a\nremove /kl/pods/uid-a", &[]);
    }

    #[test]
    fn a_sub_path_shows_its_volume_only() {
        let rule = &NOTHING_OUTSIDE;
        let volume = "mount target:v1/a dev=7:1 root=/data\n";
        keeps(rule, &[volume, "mount subpath:v1/a dev=7:1 root=/data/sub"].concat(), &[]);
        keeps(rule, &[volume, "mount target:v2/a dev=7:2\nmount subpath:v2/a dev=7:2 root=/x"].concat(), &[]);
        passes_over(rule, "mount subpath:v1/a dev=8:1 root=/etc", &[]);
        let outside = "a sub-path shows what is not in its volume";
        breaks(rule, outside, &[volume, "mount subpath:v1/a dev=8:1 root=/data/sub"].concat(), &[]);
        breaks(rule, outside, &[volume, "mount subpath:v1/a dev=7:1 root=/database"].concat(), &[]);
    }

    #[test]
    fn files_that_are_not_ours_keep_their_group() {
        let rule = &NOT_OURS_TO_OWN;
        let chown = "chown target:v1/a\n";
        let volume = |policy: &str, more: &str| {
            format!(
                r#"api create CSIDriver d case {{"spec":{{"fsGroupPolicy":"{policy}"}}}}
                api create PersistentVolume pv-v1 case {{"spec":{{{more}"csi":{{"driver":"d","volumeHandle":"v1","fsType":"ext4"}}}}}}
                "#
            )
        };
        let once = r#""accessModes":["ReadWriteOnce"],"#;
        let publish = "publish v1 a\n";
        keeps(rule, &[&volume("File", ""), publish, chown].concat(), &[]);
        keeps(rule, &[&volume("ReadWriteOnceWithFSType", once), publish, chown].concat(), &[]);
        keeps(rule, &[publish, chown, "chown target:v1/b"].concat(), &[]);
        let policy = "files were given away against the driver's policy";
        breaks(rule, policy, &[&volume("None", once), publish, chown].concat(), &[]);
        breaks(rule, policy, &[&volume("ReadWriteOnceWithFSType", ""), publish, chown].concat(), &[]);
        let read_only = "publish v1 a {\"readonly\":true}\n";
        breaks(rule, "files of a read-only volume were given away", &[read_only, chown].concat(), &[]);
        let group = r#"publish v1 a {"volumeCapability":{"mount":{"volumeMountGroup":"2000"}}}
        "#;
        let both = "files were given away that the driver gives away itself";
        breaks(rule, both, &[group, chown].concat(), &[]);
    }

    #[test]
    fn an_empty_dir_lives_as_long_as_its_pod() {
        let rule = &EMPTY_WITH_ITS_POD;
        let dir = "/kl/pods/uid-a/volumes/kubernetes.io~empty-dir/cache";
        let made = format!("mkdir {dir}\n");
        keeps(rule, &format!("{made}rmdir {dir}"), &[]);
        passes_over(rule, &made, &["a"]);
        breaks(rule, "an emptyDir outlived its pod", &made, &["b"]);
        let taken = "an emptyDir was taken away from a pod that wants it";
        let wants = "wants empty:cache/a yes\n";
        breaks(rule, taken, &format!("{made}{wants}remove {dir}"), &["a"]);
        breaks(rule, taken, &format!("{made}{wants}remove {dir}/file"), &["a"]);
        keeps(rule, &format!("{made}{wants}remove {dir}2/file"), &["a"]);
    }

    #[test]
    fn the_users_directory_is_left_alone() {
        let rule = &LOCAL_IS_THE_USERS;
        let volume = r#"api create PersistentVolume l case {"spec":{"local":{"path":"/mnt/disk"}}}
        "#;
        keeps(
            rule,
            &[volume, "mkdir /mnt/disk/sub\nrmdir /mnt/disks\neffect umount target:v1/a"].concat(),
            &[],
        );
        let taken = "something of the user's was taken away";
        for what in
            ["effect umount /mnt/disk", "rmdir /mnt/disk", "remove /mnt/disk/file", "unlink /mnt/disk/a/b"]
        {
            breaks(rule, taken, &[volume, what].concat(), &[]);
        }
    }
}
