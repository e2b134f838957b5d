//! What an attachment asks for, and what has to be done about it: decided without a call.

use api::Attachment;

/// The fields of an attachment that others write.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Asked<'a> {
    node: &'a str,
    volume: &'a str,
    is_deleting: bool,
    attached: bool,
}

impl<'a> Asked<'a> {
    pub(super) fn of(attachment: &'a Attachment) -> Self {
        Self {
            node: &attachment.node,
            volume: &attachment.volume,
            is_deleting: attachment.meta.is_deleting(),
            attached: attachment.attached,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Attach,
    /// Unpublish the volume, and let the attachment go.
    Detach,
    Nothing,
}

/// The next step for an attachment as it is now.
pub(super) fn next(attachment: &Attachment, driver: &str, finalizer: &str) -> Step {
    let kept = attachment.meta.finalizers.iter().any(|kept| kept == finalizer);
    match (attachment.attacher == driver, attachment.meta.is_deleting()) {
        (true, false) if !attachment.attached => Step::Attach,
        (true, true) if kept => Step::Detach,
        _ => Step::Nothing,
    }
}

/// The finalizer of a driver's attachments, and of the volumes that have one.
pub(super) fn finalizer(driver: &str) -> String {
    let name = driver.replace(|each: char| !each.is_ascii_alphanumeric() && each != '-', "-");
    let end = if name.ends_with('-') { "X" } else { "" };
    format!("external-attacher/{name}{end}")
}

#[cfg(test)]
mod tests {
    use api::Meta;

    use super::*;

    fn attachment(attached: bool, deleting: bool, finalizers: &[&str]) -> Attachment {
        let mut meta = Meta::named("", "csi-1");
        meta.deleted = deleting.then(|| "2026-01-01T00:00:00Z".to_owned());
        meta.finalizers = finalizers.iter().map(|&name| name.to_owned()).collect();
        Attachment { meta, attacher: "a.csi".to_owned(), attached, ..Attachment::default() }
    }

    #[test]
    fn step_follows_from_deletion_state_and_finalizer() {
        let mine = finalizer("a.csi");
        let rows = [
            (false, false, &[][..], Step::Attach),
            (false, false, &[mine.as_str()], Step::Attach),
            (true, false, &[mine.as_str()], Step::Nothing),
            (true, true, &[mine.as_str()], Step::Detach),
            (false, true, &[mine.as_str()], Step::Detach),
            (true, true, &["another"], Step::Nothing),
            (false, true, &[], Step::Nothing),
        ];
        for (attached, deleting, finalizers, step) in rows {
            let of = attachment(attached, deleting, finalizers);
            assert_eq!(next(&of, "a.csi", &mine), step, "{attached} {deleting} {finalizers:?}");
            assert_eq!(next(&of, "b.csi", &mine), Step::Nothing, "another driver's");
        }
    }

    #[test]
    fn finalizer_is_a_name_that_the_api_accepts() {
        let rows = [
            ("hostpath.csi.k8s.io", "external-attacher/hostpath-csi-k8s-io"),
            ("a_b", "external-attacher/a-b"),
            ("ends.", "external-attacher/ends-X"),
        ];
        rows.iter().for_each(|(driver, expected)| assert_eq!(finalizer(driver), *expected));
    }
}
