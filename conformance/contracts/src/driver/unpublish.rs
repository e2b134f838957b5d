//! Promises about answers to `NodeUnpublishVolume` and `NodeUnstageVolume`.

use serde_json::{Value, json};

use crate::csi::Request;
use crate::event::{Event, TraceLine};
use crate::rule::books::{Call, Progress, Volume, is_unknown};
use crate::rule::{Books, Checked, Report, Rule, Witness};

use super::{answered, succeeded, top, was_made_twice};

const UNPUBLISH: &str = "NodeUnpublishVolume";
const UNSTAGE: &str = "NodeUnstageVolume";

pub(super) static TARGET_IS_GONE: Rule = Rule {
    id: "DRV-060",
    sentence: "nothing is mounted at a target once it was unpublished",
    witnesses: &[Witness::Rpc, Witness::Kernel],
    check: Checked::Each(|books, line, report| {
        let Some(call) = succeeded(books, line, UNPUBLISH) else { return };
        let known = books.volume(call.volume());
        if known.is_some_and(|known| known.publish_requests.contains_key(call.target())) {
            report.tried();
        }
        if top(books, call.target()).is_some() {
            report.broken(UNPUBLISH, "the target is still mounted", call.target());
        }
    }),
};

/// The cause of a finding about a repeated `NodeUnpublishVolume`.
pub const REFUSED_AGAIN: &str = "unpublishing again was refused";

pub(super) static UNPUBLISHED_AGAIN: Rule = Rule {
    id: "DRV-062",
    sentence: "unpublishing again is OK",
    witnesses: &[Witness::Rpc],
    check: Checked::Each(|books, line, report| unpublished_again(books, line, report, false)),
};

pub(super) static INLINE_UNPUBLISHED_AGAIN: Rule = Rule {
    id: "DRV-068",
    sentence: "unpublishing an inline volume again is OK, though the volume is gone",
    witnesses: &[Witness::Rpc],
    check: Checked::Each(|books, line, report| unpublished_again(books, line, report, true)),
};

/// A repeated call for a volume that is inline, or for one that is not: of an inline one nothing is left, and that is another
/// fault of a driver than a refusal for a volume that it has.
fn unpublished_again(books: &Books, line: &TraceLine, report: &mut Report, inline: bool) {
    let Some((call, end)) = answered(books, line, UNPUBLISH) else { return };
    let known = books.volume(call.volume());
    let again = was_made_twice(end) || known.is_some_and(|known| known.unpublished.contains(call.target()));
    // NOT_FOUND is right for a deleted volume, also for one that was published or staged before.
    let deleted = known.is_some_and(|known| known.deleted);
    if !again || deleted || is_unknown(&end.code) || known.is_some_and(is_inline) != inline {
        return;
    }
    report.tried();
    if end.code != "OK" {
        let detail = format!("{}: {}", call.target(), end.code);
        report.broken(UNPUBLISH, REFUSED_AGAIN, detail);
    }
}

/// Whether a volume came with its `NodePublishVolume`.
fn is_inline(volume: &Volume) -> bool {
    let is_inline =
        |request: &Value| Request::of(request).volume_context().get(EPHEMERAL) == Some(&json!("true"));
    volume.publish_requests.values().any(is_inline)
}

/// The key of the volume context by which a driver knows an inline volume.
const EPHEMERAL: &str = "csi.storage.k8s.io/ephemeral";

pub(super) static OTHERS_STAY: Rule = Rule {
    id: "DRV-063",
    sentence: "unpublishing one target leaves the volume's other targets alone",
    witnesses: &[Witness::Rpc, Witness::Kernel],
    check: Checked::Each(others_stay),
};

fn others_stay(books: &Books, line: &TraceLine, report: &mut Report) {
    if let Some(call) = succeeded(books, line, UNPUBLISH) {
        let mut targets = books.volume(call.volume()).into_iter().flat_map(|known| &known.published);
        if targets.any(|(target, step)| target != call.target() && *step == Progress::Done) {
            report.tried();
        }
    }
    let Event::MountDel(gone) = &line.event else { return };
    for (volume, known) in books.volumes_at(&gone.target) {
        if known.published.get(&gone.target) != Some(&Progress::Done) {
            continue;
        }
        let mut calls = books.in_flight(volume, UNPUBLISH).map(Call::target).peekable();
        if calls.peek().is_some() && !calls.any(|target| target == gone.target) {
            report.broken(UNPUBLISH, "another target of the volume was unmounted", gone.target.as_str());
        }
    }
}

pub(super) static STAGING_IS_GONE: Rule = Rule {
    id: "DRV-070",
    sentence: "nothing is mounted at a staging path once it was unstaged",
    witnesses: &[Witness::Rpc, Witness::Kernel],
    check: Checked::Each(|books, line, report| {
        let Some(call) = succeeded(books, line, UNSTAGE) else { return };
        if books.volume(call.volume()).is_some_and(|known| known.stage_request.is_some()) {
            report.tried();
        }
        if top(books, call.staging()).is_some() {
            report.broken(UNSTAGE, "the staging path is still mounted", call.staging());
        }
    }),
};

pub(super) static UNSTAGED_AGAIN: Rule = Rule {
    id: "DRV-071",
    sentence: "unstaging again is OK",
    witnesses: &[Witness::Rpc],
    check: Checked::Each(|books, line, report| {
        let Some((call, end)) = answered(books, line, UNSTAGE) else { return };
        let known = books.volume(call.volume());
        let again = was_made_twice(end) || known.is_some_and(|known| known.unstaged.contains(call.staging()));
        // NOT_FOUND is right for a deleted volume, also for one that was published or staged before.
        let deleted = known.is_some_and(|known| known.deleted);
        if !again || deleted || is_unknown(&end.code) {
            return;
        }
        report.tried();
        if end.code != "OK" {
            let detail = format!("{}: {}", call.staging(), end.code);
            report.broken(UNSTAGE, "unstaging again was refused", detail);
        }
    }),
};

pub(super) static PUBLISHED_IS_NOT_UNSTAGED: Rule = Rule {
    id: "DRV-075",
    sentence: "unstaging a volume that is still published is refused, and the target goes on working",
    witnesses: &[Witness::Rpc],
    check: Checked::Each(|books, line, report| {
        let Some((call, end)) = answered(books, line, UNSTAGE) else { return };
        let mut targets = books.volume(call.volume()).into_iter().flat_map(|known| &known.published);
        let Some((target, _)) = targets.find(|(_, step)| **step == Progress::Done) else { return };
        report.tried();
        if end.code == "OK" {
            report.broken(UNSTAGE, "a volume was unstaged while it was published", target);
        }
    }),
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::script::{breaks, keeps, passes_over};

    const SET_UP: &str = "mount staging:v1\nstage v1\nmount target:v1/a\npublish v1 a\n";

    #[test]
    fn unpublished_target_and_unstaged_path_have_no_mount() {
        let rule = &TARGET_IS_GONE;
        keeps(
            rule,
            &[SET_UP, "unpublish v1 a begins\numount target:v1/a\nunpublish v1 a ends"].concat(),
            &[],
        );
        passes_over(rule, &[SET_UP, "unpublish v1 a Internal"].concat(), &[]);
        breaks(rule, "the target is still mounted", &[SET_UP, "unpublish v1 a"].concat(), &[]);

        let rule = &STAGING_IS_GONE;
        keeps(rule, &[SET_UP, "umount staging:v1\nunstage v1"].concat(), &[]);
        breaks(rule, "the staging path is still mounted", &[SET_UP, "unstage v1"].concat(), &[]);
    }

    #[test]
    fn repeated_unpublish_and_unstage_are_ok() {
        let rule = &UNPUBLISHED_AGAIN;
        passes_over(
            rule,
            "publish v1 a\nunpublish v1 a Internal\nunpublish v1 a\nunpublish v1 a Unavailable",
            &[],
        );
        passes_over(rule, "publish v1 a\nunpublish v1 a\npublish v1 a\nunpublish v1 a Internal", &[]);
        keeps(rule, "publish v1 a\nunpublish v1 a\nunpublish v1 a", &[]);
        let refused = "unpublishing again was refused";
        breaks(rule, refused, "publish v1 a\nunpublish v1 a\nunpublish v1 a NotFound", &[]);
        let twice = "{} NotFound code= delay=0 hang=false duplicate=true";
        let call = format!("calls NodeUnpublishVolume {{\"volumeId\":\"v1\"}} {twice}");
        breaks(rule, refused, &["publish v1 a\n", &call].concat(), &[]);

        let inline = r#"publish v1 a {"volumeContext":{"csi.storage.k8s.io/ephemeral":"true"}}"#;
        let again = |code: &str| format!("{inline}\nunpublish v1 a\nunpublish v1 a {code}");
        passes_over(rule, &again("NotFound"), &[]);
        breaks(&INLINE_UNPUBLISHED_AGAIN, refused, &again("NotFound"), &[]);
        keeps(&INLINE_UNPUBLISHED_AGAIN, &again("OK"), &[]);
        let by_node = "publish v1 a\nunpublish v1 a\nunpublish v1 a NotFound";
        passes_over(&INLINE_UNPUBLISHED_AGAIN, by_node, &[]);

        let rule = &UNSTAGED_AGAIN;
        keeps(rule, "stage v1\nunstage v1\nunstage v1", &[]);
        breaks(rule, "unstaging again was refused", "stage v1\nunstage v1\nunstage v1 NotFound", &[]);
        let call = format!("calls NodeUnstageVolume {{\"volumeId\":\"v1\"}} {twice}");
        breaks(rule, "unstaging again was refused", &["stage v1\n", &call].concat(), &[]);
    }

    #[test]
    fn repeated_call_for_a_deleted_volume_may_be_not_found() {
        let delete = |code: &str| format!("calls DeleteVolume {{\"volumeId\":\"v1\"}} {{}} {code}\n");
        let create = "calls CreateVolume {} {\"volume\":{\"volumeId\":\"v1\"}} OK\n";
        let rows = [
            (delete("OK"), true),
            (delete("DeadlineExceeded"), true),
            (delete("FailedPrecondition"), false),
            ([delete("OK"), create.to_owned()].concat(), false),
        ];
        for (between, may_be_not_found) in rows {
            for (rule, cause, call, done) in [
                (&UNPUBLISHED_AGAIN, "unpublishing again was refused", "unpublish v1 a", "publish v1 a"),
                (&UNSTAGED_AGAIN, "unstaging again was refused", "unstage v1", "stage v1"),
            ] {
                let script = format!("{done}\n{call}\n{between}{call} NotFound");
                if may_be_not_found {
                    passes_over(rule, &script, &[])
                } else {
                    breaks(rule, cause, &script, &[])
                }
            }
        }
    }

    #[test]
    fn other_targets_stay() {
        let rule = &OTHERS_STAY;
        let shared =
            "mount target:v1/a\npublish v1 a\nmount target:v1/b\npublish v1 b\nunpublish v1 a begins\n";
        keeps(rule, &[shared, "umount target:v1/a\nunpublish v1 a ends"].concat(), &[]);
        let other = "another target of the volume was unmounted";
        breaks(rule, other, &[shared, "umount target:v1/a\numount target:v1/b"].concat(), &[]);
    }

    #[test]
    fn published_volume_is_not_unstaged() {
        let rule = &PUBLISHED_IS_NOT_UNSTAGED;
        keeps(rule, "stage v1\npublish v1 a\nunstage v1 FailedPrecondition\nunpublish v1 a\nunstage v1", &[]);
        let early = "a volume was unstaged while it was published";
        breaks(rule, early, "stage v1\npublish v1 a\nunstage v1", &[]);
    }
}
