//! Whether a volume is attached, after each transition.

use super::*;

#[test]
fn attaching_again_changes_only_where_the_device_is() {
    let mut actual = state_after(&[device_mounted()]);
    actual.apply(&name(), attached(true, 7));
    let record = actual.volume(&name()).expect("it was there");
    assert_eq!(record.attachability, Attachability::No);
    assert_eq!((record.size, &*record.device_path), (Bytes(7), "dev"));
    let moved = Transition::Attached {
        spec: spec(),
        plugin: "other".into(),
        attachable: true,
        device_path: "elsewhere".to_owned(),
        claim_size: Some(Bytes(9)),
    };
    actual.apply(&name(), moved);
    let record = actual.volume(&name()).expect("it was there");
    assert_eq!(record.size, Bytes(7), "a known size stays");
    assert_eq!((&*record.device_path, record.plugin.as_str()), ("elsewhere", "p"));
    assert_eq!(actual.spec(&name()).expect("it was there").name().as_str(), "pv");
}

#[test]
fn an_attachment_that_a_mount_has_found_is_not_denied_later() {
    let read_back = Rebuilt { spec: Spec::clone(&spec()), device_mount_path: None, selinux_label: None };
    let mut actual = ActualState::default();
    actual.add_reconstructed(&name(), &"p".into(), &read_back, None);
    let attachability = |actual: &ActualState| actual.volume(&name()).map(|record| record.attachability);
    assert_eq!(attachability(&actual), Some(Attachability::Unknown));
    let mut denied = actual.clone();
    denied.correct(&name(), None);
    assert_eq!(attachability(&denied), Some(Attachability::No));
    denied.apply(&name(), Transition::AttachmentFound);
    assert_eq!(attachability(&denied), Some(Attachability::Yes));
    actual.apply(&name(), Transition::AttachmentFound);
    actual.correct(&name(), None);
    assert_eq!(attachability(&actual), Some(Attachability::Yes));
}

/// A volume recovered as not attachable may have been attached since, unless a certain mount uses it.
#[test]
fn only_what_is_attachable_and_unused_is_attached_after_all() {
    let used = || Transition::PodMounted(record(), mounted());
    let tried = || Transition::PodUncertain(record());
    for (way, attachable, expected) in [
        (vec![], true, Attachability::Yes),
        (vec![], false, Attachability::No),
        (vec![tried()], true, Attachability::Yes),
        (vec![used()], true, Attachability::No),
        (vec![device_uncertain()], true, Attachability::Yes),
        (vec![device_mounted()], true, Attachability::No),
    ] {
        let mut actual = state_after(&way);
        actual.apply(&name(), attached(attachable, 0));
        let record = actual.volume(&name()).expect("it was there");
        assert_eq!(record.attachability, expected, "{way:?} {attachable}");
    }
}
