//! The manager's requests repeat the volume's own values, the same ones each time, and leave none empty.

use crate::csi::{PathField, Request, VOLUME_ID};
use crate::event::{Event, RpcStart, TraceLine};
use crate::object::SecretReference;
use crate::rule::place::Place;
use crate::rule::{Books, Checked, Report, Rule, Witness};

/// The prefix of the keys that Kubernetes adds to a volume's context when a driver asks for them.
const ADDED: &str = "csi.storage.k8s.io/";

pub(super) static CONTEXT_IS_THE_VOLUMES: Rule = Rule {
    id: "INV-053",
    sentence: "volume_context is the volume's attributes, and beside them only what the driver asked for",
    witnesses: &[Witness::Rpc, Witness::Api],
    check: Checked::Each(context_is_the_volumes),
};

fn context_is_the_volumes(books: &Books, line: &TraceLine, report: &mut Report) {
    let Some(start) = with_context(line) else { return };
    let volume = start.request().volume_id();
    let Some((_, object)) = books.persistent_volume(volume) else { return };
    report.tried();
    let own = object.attributes();
    let mut sent = start.request().volume_context();
    sent.retain(|key, _| !key.starts_with(ADDED) || own.contains_key(key));
    if sent != own {
        report.broken(&start.method, "volume_context is not the volume's attributes", volume);
    }
}

pub(super) static PUBLISH_CONTEXT_IS_THE_ATTACHMENTS: Rule = Rule {
    id: "INV-054",
    sentence: "publish_context is the attachment's metadata, and empty where none is needed",
    witnesses: &[Witness::Rpc, Witness::Api],
    check: Checked::Each(publish_context_is_the_attachments),
};

fn publish_context_is_the_attachments(books: &Books, line: &TraceLine, report: &mut Report) {
    let Some(start) = with_context(line) else { return };
    let volume = start.request().volume_id();
    let Some((name, _)) = books.persistent_volume(volume) else { return };
    report.tried();
    let attachment = books.attachments(name).next();
    let metadata = attachment.map(|(_, attachment)| attachment.metadata()).unwrap_or_default();
    if start.request().publish_context() != metadata {
        report.broken(&start.method, "publish_context is not the attachment's metadata", volume);
    }
}

fn with_context(line: &TraceLine) -> Option<&RpcStart> {
    match &line.event {
        Event::RpcStart(start)
            if matches!(start.method.as_str(), "NodeStageVolume" | "NodePublishVolume") =>
        {
            Some(start)
        }
        _ => None,
    }
}

pub(super) static SAME_CAPABILITY: Rule = Rule {
    id: "INV-056",
    sentence: "a volume is published with the capability it was staged with, but for what belongs to the pod",
    witnesses: &[Witness::Rpc],
    check: Checked::Each(same_capability),
};

fn same_capability(books: &Books, line: &TraceLine, report: &mut Report) {
    let Event::RpcStart(start) = &line.event else { return };
    let volume = start.request().volume_id();
    let staged = books.volume(volume).and_then(|known| known.stage_request.as_ref());
    let Some(staged) = staged.filter(|_| start.method == "NodePublishVolume") else { return };
    report.tried();
    if Request::of(staged).capability().without_the_pods() != start.request().capability().without_the_pods()
    {
        report.broken(&start.method, "published with another capability than it was staged with", volume);
    }
}

pub(super) static SAME_CONTEXT_AGAIN: Rule = Rule {
    id: "INV-057",
    sentence: "publishing the same target again sends the same context, but for fresh tokens",
    witnesses: &[Witness::Rpc],
    check: Checked::Each(same_context_again),
};

fn same_context_again(books: &Books, line: &TraceLine, report: &mut Report) {
    let Event::RpcStart(start) = &line.event else { return };
    let target = start.request().target_path();
    let known = books.volume(start.request().volume_id());
    let before = known.and_then(|known| known.publish_requests.get(target));
    let Some(before) = before.filter(|_| start.method == "NodePublishVolume") else { return };
    let lasting = |request: Request<'_>| {
        let mut context = request.volume_context();
        context.retain(|key, _| !key.ends_with("serviceAccount.tokens"));
        context
    };
    report.tried();
    if lasting(Request::of(before)) != lasting(start.request()) {
        report.broken(&start.method, "published again with another context", target);
    }
}

pub(super) static NOTHING_IS_EMPTY: Rule = Rule {
    id: "INV-058",
    sentence: "no call is sent with an empty volume id or an empty path",
    witnesses: &[Witness::Rpc],
    check: Checked::Each(nothing_is_empty),
};

fn nothing_is_empty(_: &Books, line: &TraceLine, report: &mut Report) {
    let Event::RpcStart(start) = &line.event else { return };
    let path = match start.method.as_str() {
        "NodeStageVolume" | "NodeUnstageVolume" => Some(PathField::Staging),
        "NodePublishVolume" | "NodeUnpublishVolume" => Some(PathField::Target),
        "NodeExpandVolume" | "NodeGetVolumeStats" => Some(PathField::Volume),
        "ControllerPublishVolume" | "ControllerUnpublishVolume" | "DeleteVolume" => None,
        _ => return,
    };
    report.tried();
    let request = start.request();
    let empty = match path {
        _ if request.volume_id().is_empty() => VOLUME_ID,
        Some(path) if request.path(path).is_empty() => path.as_str(),
        _ => return,
    };
    report.broken(&start.method, "a call was sent with an empty field", empty);
}

pub(super) static ONE_PUBLISH_A_POD: Rule = Rule {
    id: "INV-037",
    sentence: "a volume that a pod names twice is published for it once",
    witnesses: &[Witness::Rpc],
    check: Checked::Each(|books, line, report| {
        let Event::RpcStart(start) = &line.event else { return };
        let target = start.request().target_path();
        let Some(pod) = Place::of(target).and_then(Place::pod) else { return };
        if start.method != "NodePublishVolume" {
            return;
        }
        report.tried();
        let known = books.volume(start.request().volume_id());
        let mut others = known.into_iter().flat_map(|known| known.published.keys());
        let twice = others.any(|other| other != target && Place::of(other).and_then(Place::pod) == Some(pod));
        if twice {
            report.broken(&start.method, "published a second time for one pod", target);
        }
    }),
};

pub(super) static UNDONE_AS_DONE: Rule = Rule {
    id: "INV-043",
    sentence: "a path that was staged or published before a restart is undone with the same volume id",
    witnesses: &[Witness::Rpc],
    check: Checked::Each(|books, line, report| {
        let Event::RpcStart(start) = &line.event else { return };
        let (field, published) = match start.method.as_str() {
            "NodeUnpublishVolume" => (PathField::Target, true),
            "NodeUnstageVolume" => (PathField::Staging, false),
            _ => return,
        };
        let (volume, path) = (start.request().volume_id(), start.request().path(field));
        let mut done = books.volumes_at(path).filter(|(_, known)| match published {
            true => known.published.contains_key(path),
            false => known.staged.contains_key(path),
        });
        let Some((first, _)) = done.next() else { return };
        report.tried();
        if first != volume && !done.any(|(id, _)| id == volume) {
            report.broken(&start.method, "undone with another id than it was done with", path);
        }
    }),
};

pub(super) static SECRETS_WHERE_THEY_BELONG: Rule = Rule {
    id: "INV-055",
    sentence: "a call carries secrets exactly if its volume names a secret for it",
    witnesses: &[Witness::Rpc, Witness::Api],
    check: Checked::Each(secrets_where_they_belong),
};

fn secrets_where_they_belong(books: &Books, line: &TraceLine, report: &mut Report) {
    let Event::RpcStart(start) = &line.event else { return };
    let reference = match start.method.as_str() {
        "NodeStageVolume" => SecretReference::NodeStage,
        "NodePublishVolume" => SecretReference::NodePublish,
        "NodeExpandVolume" => SecretReference::NodeExpand,
        _ => return,
    };
    let volume = start.request().volume_id();
    let Some((_, object)) = books.persistent_volume(volume) else { return };
    // A trace without references to secrets cannot be judged.
    let Some(is_named) = object.names_secret(reference) else { return };
    report.tried();
    // Service account tokens are sent as secrets too, without any reference.
    let sent = start.request().secret_keys().any(|key| !key.ends_with("serviceAccount.tokens"));
    match (is_named, sent) {
        (false, true) => report.broken(&start.method, "sent a secret that is not for this call", volume),
        (true, false) => report.broken(&start.method, "sent without its secret", volume),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::script::{breaks, keeps, path};

    #[test]
    fn undo_uses_the_volume_id_of_the_setup() {
        let rule = &UNDONE_AS_DONE;
        let done = "stage v1\npublish v1 a\nnode kill\nnode start\n";
        keeps(rule, &[done, "unpublish v1 a\nunstage v1\nunpublish v2 a\nunstage v2"].concat(), &[]);
        let other = "undone with another id than it was done with";
        let target = format!("unpublish v2 a {{\"targetPath\":\"{}\"}}", path("target:v1/a"));
        breaks(rule, other, &[done, &target].concat(), &[]);
        let staging = format!("unstage v2 {{\"stagingTargetPath\":\"{}\"}}", path("staging:v1"));
        breaks(rule, other, &[done, &staging].concat(), &[]);
    }

    #[test]
    fn secrets_are_sent_only_to_calls_that_have_a_reference() {
        let rule = &SECRETS_WHERE_THEY_BELONG;
        let volume = r#"api create PersistentVolume pv-v1 case {"spec":{"csi":{"volumeHandle":"v1","nodeStageSecretRef":{"name":"s"},"nodePublishSecretRef":null}}}
        "#;
        let (stage, publish) =
            (r#"stage v1 {"secrets":{"key":"***"}}"#, r#"publish v1 a {"secrets":{"key":"***"}}"#);
        keeps(rule, &[volume, stage, "\npublish v1 a\nexpand v1 a"].concat(), &[]);
        let token = r#"publish v1 a {"secrets":{"csi.storage.k8s.io/serviceAccount.tokens":"***"}}"#;
        keeps(rule, &[volume, token].concat(), &[]);
        breaks(rule, "sent without its secret", &[volume, "stage v1"].concat(), &[]);
        breaks(rule, "sent a secret that is not for this call", &[volume, publish].concat(), &[]);
    }

    const PV: &str = r#"api create PersistentVolume pv-v1 case {"spec":{"csi":{"volumeHandle":"v1","volumeAttributes":{"tier":"fast"}}}}
    "#;

    #[test]
    fn volume_is_published_once_for_a_pod() {
        let rule = &ONE_PUBLISH_A_POD;
        let other = "/kl/pods/uid-a/volumes/kubernetes.io~csi/other/mount";
        let second = format!("publish v1 a {{\"targetPath\":\"{other}\"}}");
        keeps(rule, "publish v1 a\npublish v1 a\npublish v1 b\npublish v2 a", &[]);
        keeps(rule, &format!("publish v1 a\nunpublish v1 a\n{second}"), &[]);
        breaks(rule, "published a second time for one pod", &format!("publish v1 a\n{second}"), &[]);
    }

    #[test]
    fn volume_context_is_the_volumes_attributes() {
        let rule = &CONTEXT_IS_THE_VOLUMES;
        keeps(rule, &[PV, r#"stage v1 {"volumeContext":{"tier":"fast"}}"#].concat(), &[]);
        let added = r#"publish v1 a {"volumeContext":{"tier":"fast","csi.storage.k8s.io/pod.name":"a"}}"#;
        keeps(rule, &[PV, added].concat(), &[]);
        let wrong = "volume_context is not the volume's attributes";
        breaks(rule, wrong, &[PV, "stage v1"].concat(), &[]);
        breaks(rule, wrong, &[PV, r#"stage v1 {"volumeContext":{"tier":"fast","more":"x"}}"#].concat(), &[]);
    }

    #[test]
    fn publish_context_is_the_attachments_metadata() {
        let rule = &PUBLISH_CONTEXT_IS_THE_ATTACHMENTS;
        let attached = r#"api create VolumeAttachment x controller {"spec":{"source":{"persistentVolumeName":"pv-v1"}},"status":{"attachmentMetadata":{"dev":"sda"}}}
        "#;
        keeps(rule, &[PV, "stage v1"].concat(), &[]);
        keeps(rule, &[PV, attached, r#"stage v1 {"publishContext":{"dev":"sda"}}"#].concat(), &[]);
        let wrong = "publish_context is not the attachment's metadata";
        breaks(rule, wrong, &[PV, attached, "stage v1"].concat(), &[]);
        breaks(rule, wrong, &[PV, r#"stage v1 {"publishContext":{"dev":"sda"}}"#].concat(), &[]);
    }

    #[test]
    fn publish_has_the_capability_of_the_stage() {
        let rule = &SAME_CAPABILITY;
        let grouped = r#"{"volumeCapability":{"accessMode":{"mode":"SINGLE_NODE_WRITER"},"mount":{"fsType":"ext4","volumeMountGroup":"2000"}}}"#;
        let xfs =
            r#"{"volumeCapability":{"accessMode":{"mode":"SINGLE_NODE_WRITER"},"mount":{"fsType":"xfs"}}}"#;
        keeps(rule, &format!("stage v1\npublish v1 a\npublish v1 b {grouped}"), &[]);
        breaks(
            rule,
            "published with another capability than it was staged with",
            &format!("stage v1\npublish v1 a {xfs}"),
            &[],
        );
    }

    #[test]
    fn repeated_publish_has_the_same_context() {
        let rule = &SAME_CONTEXT_AGAIN;
        let token = |token: &str| {
            format!(
                r#"publish v1 a {{"volumeContext":{{"csi.storage.k8s.io/serviceAccount.tokens":"{token}"}}}}"#
            )
        };
        keeps(rule, &format!("{}\n{}\npublish v1 b", token("1"), token("2")), &[]);
        breaks(
            rule,
            "published again with another context",
            "publish v1 a\npublish v1 a {\"volumeContext\":{\"merged\":\"twice\"}}",
            &[],
        );
    }

    #[test]
    fn empty_field_is_broken() {
        let rule = &NOTHING_IS_EMPTY;
        keeps(rule, "stage v1\npublish v1 a\nexpand v1 a\nunpublish v1 a\nunstage v1", &[]);
        let empty = "a call was sent with an empty field";
        breaks(rule, empty, "unpublish v1 a {\"volumeId\":\"\"}", &[]);
        breaks(rule, empty, "stage v1 {\"stagingTargetPath\":\"\"}", &[]);
        breaks(rule, empty, "publish v1 a {\"targetPath\":\"\"}", &[]);
    }
}
