//! Promises about files and directories of the node that a driver creates, removes or changes during a call.
//!
//! Only the harness records them: it looks at the directory of a call's path before and after the call.
//! Without that witness these promises are not observable.

use super::is_block;
use super::publish::NOT_MOUNTED;
use super::said_by_driver;
use crate::event::{Event, Touch, Touched, TraceLine};
use crate::rule::{Books, Checked, Report, Rule, Witness};

const UNPUBLISH: &str = "NodeUnpublishVolume";
const UNSTAGE: &str = "NodeUnstageVolume";
const MAKING: [&str; 2] = ["NodeStageVolume", "NodePublishVolume"];

pub(super) static TARGET_IS_DELETED: Rule = Rule {
    id: "DRV-061",
    sentence: "the target itself is gone once it was unpublished",
    witnesses: &[Witness::Rpc, Witness::File],
    check: Checked::Each(|_, line, report| {
        looked(line, report, |method| method == UNPUBLISH);
        let Some(touched) = touched(line).filter(|touched| touched.how == Touch::Kept) else { return };
        report.broken(&touched.method, "the driver made the target and left it", touched.path.as_str());
    }),
};

pub(super) static BESIDE_THE_TARGET: Rule = Rule {
    id: "DRV-065",
    sentence: "what is beside the target is the caller's and stays untouched",
    witnesses: &[Witness::Rpc, Witness::File],
    check: Checked::Each(|_, line, report| {
        looked(line, report, |method| method == UNPUBLISH);
        beside(line, report, |method| method == UNPUBLISH);
    }),
};

pub(super) static STAGING_STAYS: Rule = Rule {
    id: "DRV-074",
    sentence: "the staging directory is the caller's: unstaging leaves it where it was",
    witnesses: &[Witness::Rpc, Witness::File],
    check: Checked::Each(|_: &Books, line, report| {
        looked(line, report, |method| method == UNSTAGE);
        let Some(touched) = touched(line).filter(|touched| touched.named) else { return };
        if touched.method == UNSTAGE && touched.how != Touch::Kept {
            report.broken(&touched.method, cause(touched.how), touched.path.as_str());
        }
    }),
};

pub(super) static BESIDE_THE_PATH: Rule = Rule {
    id: "DRV-076",
    sentence: "what is beside the path of a call is the caller's and stays untouched",
    witnesses: &[Witness::Rpc, Witness::File],
    check: Checked::Each(|books, line, report| {
        looked(line, report, |method| MAKING.contains(&method) || method == UNSTAGE);
        beside(line, report, |method| method != UNPUBLISH);
        let Some(touched) = touched(line).filter(|touched| touched.named) else { return };
        // At the path itself only this is not the call's own work.
        if touched.how == Touch::Linked && touched.method != UNSTAGE && !is_instead_of_mount(books, touched) {
            report.broken(&touched.method, cause(touched.how), touched.path.as_str());
        }
    }),
};

/// Whether a link is at the path of a volume's mount: another rule reports that nothing is mounted there.
fn is_instead_of_mount(books: &Books, touched: &Touched) -> bool {
    let call = books.calls.get(&touched.id);
    call.is_some_and(|call| {
        call.method == "NodePublishVolume" && call.target() == touched.path && !is_block(call)
    })
}

fn touched(line: &TraceLine) -> Option<&Touched> {
    match &line.event {
        Event::Touched(touched) => Some(touched),
        _ => None,
    }
}

/// Notes that the harness looked around the path of a call that worked.
fn looked(line: &TraceLine, report: &mut Report, of: impl Fn(&str) -> bool) {
    if said_by_driver(line).is_some_and(|end| end.code == "OK" && of(&end.method)) {
        report.tried();
    }
}

fn beside(line: &TraceLine, report: &mut Report, of: impl Fn(&str) -> bool) {
    if let Some(touched) = touched(line).filter(|touched| !touched.named && of(&touched.method)) {
        report.broken(&touched.method, cause(touched.how), touched.path.as_str());
    }
}

/// The cause of a finding about a file or a directory of the node that is gone.
pub const REMOVED: &str = "the driver removed what is the node's";

fn cause(how: Touch) -> &'static str {
    match how {
        Touch::Removed => REMOVED,
        Touch::Replaced => "the driver replaced what is the node's",
        Touch::Linked => "the driver replaced what is the node's by a link",
        Touch::Written => "the driver wrote into what is the node's",
        Touch::Kept => "the driver left what it made",
        Touch::NoDevice => NOT_MOUNTED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::script::{keeps, passes_over};
    use crate::rule::{Judge, Violation};

    fn judged(rule: &'static Rule, method: &str, how: Touch, named: bool) -> Vec<Violation> {
        let path = "/kl/pods/uid/volumes/kubernetes.io~csi/pv/vol_data.json".to_owned();
        let event = Event::Touched(Touched { method: method.to_owned(), id: 1, path, how, named });
        Judge::new([rule], rule.witnesses).event(&TraceLine { seq: 1, t_ms: 0.0, event })
    }

    #[test]
    fn paths_that_were_looked_at_and_not_touched_are_kept() {
        keeps(&BESIDE_THE_PATH, "publish v1 a", &[]);
        keeps(&TARGET_IS_DELETED, "unpublish v1 a", &[]);
        keeps(&BESIDE_THE_TARGET, "unpublish v1 a", &[]);
        keeps(&STAGING_STAYS, "unstage v1", &[]);
        passes_over(&TARGET_IS_DELETED, "publish v1 a", &[]);
        passes_over(&STAGING_STAYS, "unstage v1 Internal", &[]);
    }

    #[test]
    fn each_touch_breaks_the_promise_of_its_call() {
        let rows = [
            (&BESIDE_THE_TARGET, UNPUBLISH, Touch::Removed, false),
            (&BESIDE_THE_PATH, "NodePublishVolume", Touch::Linked, false),
            (&BESIDE_THE_PATH, "NodePublishVolume", Touch::Linked, true),
            (&BESIDE_THE_PATH, "NodeStageVolume", Touch::Written, false),
            (&STAGING_STAYS, "NodeUnstageVolume", Touch::Removed, true),
            (&TARGET_IS_DELETED, UNPUBLISH, Touch::Kept, true),
            (&super::super::publish::MOUNTED, "NodePublishVolume", Touch::NoDevice, true),
        ];
        let rules = [
            &TARGET_IS_DELETED,
            &BESIDE_THE_TARGET,
            &STAGING_STAYS,
            &BESIDE_THE_PATH,
            &super::super::publish::MOUNTED,
        ];
        for (broken, method, how, named) in rows {
            for rule in rules {
                let found = judged(rule, method, how, named);
                let expected = usize::from(rule.id == broken.id);
                assert_eq!(found.len(), expected, "{}: {method} {how:?} {named}: {found:?}", rule.id);
                assert!(found.iter().all(|violation| violation.method == method));
            }
        }
    }
}
