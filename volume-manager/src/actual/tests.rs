//! Every state with every transition, as tables: a changed arm of `apply` is a changed line here.

mod attachment;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use api::{AttachedVolume, Meta, Volume};
use expect_test::{Expect, expect};
use plugin_api::Mounted;

use super::*;

const CLASSES: [ErrorClass; 3] = [ErrorClass::Final, ErrorClass::Uncertain, ErrorClass::Transient];

fn name() -> VolumeName {
    "p/v".into()
}

fn spec() -> Arc<Spec> {
    Arc::new(Spec::persistent(Arc::new(Volume { meta: Meta::named("", "pv"), ..Volume::default() }), false))
}

fn record() -> PodRecord {
    PodRecord {
        pod: "web".into(),
        spec: spec(),
        outer: vec!["data".into()],
        gid: None,
        selinux_label: String::new(),
    }
}

fn mounted() -> Mounted {
    Mounted { path: "/target".into(), read_only: false, managed: true, selinux_relabel: false }
}

fn attached(attachable: bool, size: u64) -> Transition {
    Transition::Attached {
        spec: spec(),
        plugin: "p".into(),
        attachable,
        device_path: "dev".to_owned(),
        claim_size: Some(Bytes(size)),
    }
}

/// The actual state with one attached volume, after these transitions of it.
fn state_after(transitions: &[Transition]) -> ActualState {
    let mut actual = ActualState::default();
    actual.apply(&name(), attached(false, 0));
    for transition in transitions {
        actual.apply(&name(), transition.clone());
    }
    actual
}

fn device_uncertain() -> Transition {
    Transition::DeviceUncertain { path: "/at".into() }
}

fn device_mounted() -> Transition {
    Transition::DeviceMounted { path: "/at".into(), device_path: String::new(), selinux_label: String::new() }
}

fn device_failed(class: ErrorClass) -> Transition {
    device_failed_with("", class)
}

fn device_failed_with(label: &str, class: ErrorClass) -> Transition {
    Transition::DeviceFailed { path: "/at".into(), class, selinux_label: label.to_owned() }
}

/// Applies every transition in every state, and compares the table of the new states with `expected`.
fn table(
    states: &[(&str, Vec<Transition>)],
    transitions: &[(&str, Transition)],
    show: impl Fn(&ActualState) -> String,
    expected: Expect,
) {
    let mut text = String::new();
    for (state, history) in states {
        for (label, transition) in transitions {
            let mut actual = state_after(history);
            let applied = catch_unwind(AssertUnwindSafe(|| actual.apply(&name(), transition.clone())));
            let result = if applied.is_ok() { show(&actual) } else { "impossible".to_owned() };
            text.push_str(&format!("{state:<11} {label:<18} {result}\n"));
        }
    }
    expected.assert_eq(&text);
}

fn device(actual: &ActualState) -> String {
    let record = actual.volume(&name()).expect("no transition here removes it");
    match &record.device {
        Device::NotMounted => "not mounted",
        Device::Attempted { .. } => "attempted",
        Device::Uncertain { .. } => "uncertain",
        Device::Mounted { .. } => "mounted",
    }
    .to_owned()
}

fn pod(actual: &ActualState) -> String {
    match actual.entry(&name(), &"web".into()).map(|entry| &entry.mount) {
        None => "absent",
        Some(PodMount::Attempted) => "attempted",
        Some(PodMount::Uncertain) => "uncertain",
        Some(PodMount::Mounted(_)) => "mounted",
    }
    .to_owned()
}

#[test]
fn stage_state_after_each_transition() {
    let states = [
        ("not mounted", vec![]),
        ("attempted", vec![device_uncertain()]),
        ("uncertain", vec![device_uncertain(), device_failed(ErrorClass::Uncertain)]),
        ("mounted", vec![device_mounted()]),
    ];
    let mut transitions = vec![("about to try", device_uncertain()), ("done", device_mounted())];
    transitions.extend(CLASSES.map(|class| {
        (["final error", "uncertain error", "transient error"][class as usize], device_failed(class))
    }));
    transitions.push(("about to undo", Transition::DeviceUndoing));
    transitions.push(("undone", Transition::DeviceUnmounted));
    table(
        &states,
        &transitions,
        device,
        expect![[r#"
        not mounted about to try       attempted
        not mounted done               mounted
        not mounted final error        not mounted
        not mounted uncertain error    uncertain
        not mounted transient error    not mounted
        not mounted about to undo      impossible
        not mounted undone             impossible
        attempted   about to try       attempted
        attempted   done               mounted
        attempted   final error        not mounted
        attempted   uncertain error    uncertain
        attempted   transient error    not mounted
        attempted   about to undo      impossible
        attempted   undone             impossible
        uncertain   about to try       uncertain
        uncertain   done               mounted
        uncertain   final error        uncertain
        uncertain   uncertain error    uncertain
        uncertain   transient error    uncertain
        uncertain   about to undo      uncertain
        uncertain   undone             not mounted
        mounted     about to try       impossible
        mounted     done               mounted
        mounted     final error        impossible
        mounted     uncertain error    impossible
        mounted     transient error    impossible
        mounted     about to undo      uncertain
        mounted     undone             not mounted
    "#]],
    );
}

#[test]
fn publish_state_after_each_transition() {
    let failed = |class| Transition::PodFailed(record(), class);
    let try_it = || Transition::PodUncertain(record());
    let states = [
        ("absent", vec![]),
        ("attempted", vec![try_it()]),
        ("uncertain", vec![try_it(), failed(ErrorClass::Uncertain)]),
        ("mounted", vec![Transition::PodMounted(record(), mounted())]),
    ];
    let mut transitions =
        vec![("about to try", try_it()), ("done", Transition::PodMounted(record(), mounted()))];
    transitions.extend(
        CLASSES.map(|class| {
            (["final error", "uncertain error", "transient error"][class as usize], failed(class))
        }),
    );
    transitions.push(("about to undo", Transition::PodUndoing("web".into())));
    transitions.push(("undone", Transition::PodUnmounted("web".into())));
    table(
        &states,
        &transitions,
        pod,
        expect![[r#"
        absent      about to try       attempted
        absent      done               mounted
        absent      final error        absent
        absent      uncertain error    uncertain
        absent      transient error    absent
        absent      about to undo      impossible
        absent      undone             absent
        attempted   about to try       attempted
        attempted   done               mounted
        attempted   final error        absent
        attempted   uncertain error    uncertain
        attempted   transient error    absent
        attempted   about to undo      impossible
        attempted   undone             impossible
        uncertain   about to try       uncertain
        uncertain   done               mounted
        uncertain   final error        uncertain
        uncertain   uncertain error    uncertain
        uncertain   transient error    uncertain
        uncertain   about to undo      uncertain
        uncertain   undone             absent
        mounted     about to try       mounted
        mounted     done               mounted
        mounted     final error        mounted
        mounted     uncertain error    mounted
        mounted     transient error    mounted
        mounted     about to undo      uncertain
        mounted     undone             absent
    "#]],
    );
}

#[test]
fn staged_or_published_volume_cannot_be_detached() {
    let is_removed = |history: &[Transition]| {
        let mut actual = state_after(history);
        catch_unwind(AssertUnwindSafe(|| actual.apply(&name(), Transition::Detached))).is_ok()
            && actual.volume(&name()).is_none()
    };
    assert!(is_removed(&[]));
    assert!(is_removed(&[device_mounted(), Transition::DeviceUnmounted]));
    assert!(!is_removed(&[device_mounted()]));
    assert!(!is_removed(&[device_uncertain()]));
    assert!(!is_removed(&[Transition::PodMounted(record(), mounted())]));
    let mut empty = ActualState::default();
    let applied = catch_unwind(AssertUnwindSafe(|| empty.apply(&name(), Transition::DeviceUndoing)));
    assert!(applied.is_err(), "a volume without a record has no transitions");
}

#[test]
fn interrupted_operation_is_uncertain() {
    let mut actual = state_after(&[device_uncertain(), Transition::PodUncertain(record())]);
    actual.settle(&name(), Some(&"web".into()));
    assert_eq!((device(&actual), pod(&actual)), ("uncertain".to_owned(), "uncertain".to_owned()));
    let mut actual = state_after(&[device_mounted(), Transition::PodMounted(record(), mounted())]);
    actual.settle(&name(), Some(&"web".into()));
    assert_eq!((device(&actual), pod(&actual)), ("mounted".to_owned(), "mounted".to_owned()));
}

#[test]
fn size_is_known_after_an_expansion() {
    let mut actual = state_after(&[]);
    let is_smaller = |actual: &ActualState, size| actual.volume(&name()).unwrap().must_grow_to(Bytes(size));
    assert!(!actual.volume(&name()).unwrap().expansion_blocked);
    assert!(!is_smaller(&actual, 2), "its size is not known");
    actual.apply(&name(), Transition::Resized(Bytes(3)));
    assert_eq!(actual.volume(&name()).unwrap().size, Bytes(3));
    assert_eq!([2, 3, 4].map(|size| is_smaller(&actual, size)), [false, false, true]);

    assert!(!actual.expansion_failed(&name()));
    actual.apply(&name(), Transition::ExpansionFailed(true));
    actual.apply(&name(), Transition::Detached);
    assert!(actual.expansion_failed(&name()), "a failed expansion outlives the record");
    assert_eq!(actual.expansions_failed().collect::<Vec<_>>(), [&name()]);
    actual.apply(&name(), Transition::ExpansionFailed(false));
    assert!(!actual.expansion_failed(&name()));
}

#[test]
fn uncertain_staging_path_is_kept() {
    let at = |path: &str| Transition::DeviceUncertain { path: path.into() };
    let failed = |path: &str| Transition::DeviceFailed {
        path: path.into(),
        class: ErrorClass::Uncertain,
        selinux_label: String::new(),
    };
    let path = |history: &[Transition]| state_after(history).volume(&name()).unwrap().device.path().cloned();
    let some = |path: &str| Some(PathBuf::from(path));
    assert_eq!(path(&[at("/a")]), some("/a"));
    assert_eq!(path(&[failed("/a")]), some("/a"));
    assert_eq!(path(&[failed("/a"), at("/b")]), some("/b"));
    assert_eq!(
        path(&[failed("/a"), failed("/b")]),
        some("/a"),
        "an error at one path leaves the other path uncertain"
    );
    assert_eq!(path(&[failed("/a"), Transition::DeviceUndoing]), some("/a"));
    let mut cut_short = state_after(&[at("/a")]);
    cut_short.settle(&name(), None);
    assert_eq!(device(&cut_short), "attempted", "an unmount never attempts a mount");
    cut_short.settle(&name(), Some(&"web".into()));
    assert_eq!(cut_short.volume(&name()).unwrap().device, Device::Uncertain { at: "/a".into() });
}

#[test]
fn remount_of_a_mounted_volume_keeps_its_record() {
    let mut actual = state_after(&[Transition::PodMounted(record(), mounted())]);
    actual.require_remount(&"web".into(), |_| true);
    let other = PodRecord { outer: vec!["other".into()], gid: Some("5".to_owned()), ..record() };
    let elsewhere = Mounted { path: "/elsewhere".into(), ..mounted() };
    actual.apply(&name(), Transition::PodMounted(other.clone(), elsewhere.clone()));
    let entry = actual.entry(&name(), &"web".into()).unwrap();
    assert_eq!((&entry.record, entry.mounted(), entry.needs_remount), (&record(), Some(&elsewhere), false));
    actual.apply(&name(), Transition::PodUndoing("web".into()));
    let tried = PodRecord { gid: Some("6".to_owned()), ..record() };
    actual.apply(&name(), Transition::PodUncertain(tried.clone()));
    let entry = actual.entry(&name(), &"web".into()).unwrap();
    assert_eq!(
        (&entry.record, entry.reconstructed),
        (&tried, false),
        "an uncertain record is replaced by the new attempt"
    );
    actual.apply(&name(), Transition::PodMounted(other.clone(), mounted()));
    let entry = actual.entry(&name(), &"web".into()).unwrap();
    assert_eq!(entry.record, other, "an uncertain mount takes the new record");
}

#[test]
fn device_path_and_label_outlive_unstage() {
    let at = Transition::DeviceMounted {
        path: "/at".into(),
        device_path: "attachment".to_owned(),
        selinux_label: "label".to_owned(),
    };
    let actual = state_after(&[at, device_mounted(), Transition::DeviceUnmounted]);
    let record = actual.volume(&name()).expect("it was there");
    assert_eq!((&*record.device_path, record.selinux_label.as_deref()), ("attachment", Some("label")));
    assert_eq!(record.device.path(), None);
}

#[test]
fn uncertain_stage_has_the_label_of_its_attempt() {
    let label_after =
        |history: &[Transition]| state_after(history).volume(&name()).unwrap().selinux_label.clone();
    let mut history = vec![device_uncertain(), device_failed_with("one", ErrorClass::Uncertain)];
    assert_eq!(label_after(&history).as_deref(), Some("one"));
    // After an uncertain attempt the first label may still be mounted, for any outcome of the next attempt.
    for class in CLASSES {
        history.extend([device_uncertain(), device_failed_with("one", class)]);
        assert_eq!(label_after(&history).as_deref(), Some("one"));
    }
    for class in [ErrorClass::Final, ErrorClass::Transient] {
        assert_eq!(label_after(&[device_uncertain(), device_failed_with("one", class)]), None);
    }
}

#[test]
fn pod_view_checks_in_the_kubelets_order() {
    let view = |actual: &ActualState, label: &str, size: u64| {
        actual.view(&name(), &"web".into(), label, Bytes(size), true)
    };
    assert_eq!(view(&ActualState::default(), "", 0), PodView::NotAttached);
    let mut actual = state_after(&[]);
    actual.initialize_size(&name(), Bytes(1));
    assert_eq!(view(&actual, "x", 2), PodView::NotMounted);
    actual.apply(&name(), Transition::PodUncertain(record()));
    assert_eq!(view(&actual, "", 2), PodView::Uncertain);
    assert_eq!(view(&actual, "x", 2), PodView::LabelMismatch);
    actual.apply(&name(), Transition::PodMounted(record(), mounted()));
    assert_eq!(view(&actual, "", 1), PodView::Mounted);
    assert_eq!(view(&actual, "", 2), PodView::NeedsGrow { from: Bytes(1) });
    assert_eq!(actual.view(&name(), &"web".into(), "", Bytes(2), false), PodView::Mounted);
    assert_eq!(actual.require_remount(&"web".into(), |_| true), [name()]);
    assert_eq!(view(&actual, "", 2), PodView::NeedsRemount, "a remount hides a growth");
    actual.apply(&name(), Transition::PodMounted(record(), mounted()));
    actual.apply(&name(), Transition::ExpansionBlocked);
    assert_eq!(view(&actual, "", 2), PodView::Mounted, "the driver refused");
}

#[test]
fn reconstructed_volume_is_corrected_once() {
    let rebuilt = Rebuilt {
        spec: (*spec()).clone(),
        device_mount_path: Some(PathBuf::from("/at")),
        selinux_label: None,
    };
    let mut actual = ActualState::default();
    actual.add_reconstructed(&name(), &"p".into(), &rebuilt, Some(record()));
    assert_eq!((device(&actual), pod(&actual)), ("uncertain".to_owned(), "uncertain".to_owned()));
    assert!(!actual.volume(&name()).expect("it was added").is_attached());
    let attached = AttachedVolume { name: name(), device_path: "sdb".to_owned() };
    actual.correct(&name(), Some(&attached));
    actual.correct(&name(), None);
    let record = actual.volume(&name()).expect("it was added");
    assert!(record.is_attached());
    assert_eq!(record.device_path, "sdb");
}

#[test]
fn known_stage_is_not_reconstructed() {
    let rebuilt = |at: &str| Rebuilt {
        spec: (*spec()).clone(),
        device_mount_path: Some(at.into()),
        selinux_label: None,
    };
    let done = || Transition::DeviceMounted {
        path: "/at".into(),
        device_path: "attachment".to_owned(),
        selinux_label: String::new(),
    };
    for (transition, expected) in [(device_uncertain(), "attempted"), (done(), "mounted")] {
        let mut actual = state_after(&[transition]);
        actual.add_reconstructed(&name(), &"p".into(), &rebuilt("/elsewhere"), None);
        assert_eq!(device(&actual), expected);
        assert_eq!(actual.volume(&name()).unwrap().device.path(), Some(&PathBuf::from("/at")));
    }

    let mut actual = ActualState::default();
    actual.add_reconstructed(&name(), &"p".into(), &rebuilt("/at"), None);
    actual.add_reconstructed(&name(), &"p".into(), &rebuilt("/elsewhere"), None);
    assert_eq!(actual.volume(&name()).unwrap().device, Device::Uncertain { at: "/at".into() });
    actual.apply(&name(), done());
    let attached = AttachedVolume { name: name(), device_path: "sdb".to_owned() };
    actual.correct(&name(), Some(&attached));
    let record = actual.volume(&name()).unwrap();
    assert_eq!((record.is_attached(), &*record.device_path), (true, "attachment"));
}

#[test]
fn unknown_label_is_set_by_the_first_pod_only() {
    let of = |label: &str| PodRecord { selinux_label: label.to_owned(), ..record() };
    let label = |history: &[Transition]| state_after(history).volume(&name()).unwrap().selinux_label.clone();
    let first = || Transition::PodUncertain(of("first"));
    let second = || Transition::PodMounted(PodRecord { pod: "db".into(), ..of("second") }, mounted());
    assert_eq!(label(&[device_mounted()]), None);
    assert_eq!(label(&[first()]).as_deref(), Some("first"));
    assert_eq!(label(&[first(), second()]).as_deref(), Some("first"));
    let staged = Transition::DeviceMounted {
        path: "/at".into(),
        device_path: String::new(),
        selinux_label: "staged".to_owned(),
    };
    assert_eq!(label(&[staged, second()]).as_deref(), Some("staged"));
}

#[test]
fn volume_is_reconstructed_until_it_is_mounted() {
    let rebuilt = |label: Option<&str>| Rebuilt {
        spec: (*spec()).clone(),
        device_mount_path: None,
        selinux_label: label.map(str::to_owned),
    };
    let mut actual = ActualState::default();
    actual.add_reconstructed(&name(), &"p".into(), &rebuilt(None), Some(record()));
    actual.add_reconstructed(&name(), &"p".into(), &rebuilt(Some("a")), None);
    actual.add_reconstructed(&name(), &"p".into(), &rebuilt(Some("b")), None);
    assert_eq!(actual.volume(&name()).unwrap().selinux_label.as_deref(), Some("a"));
    assert_eq!(device(&actual), "not mounted");
    assert_eq!(actual.volumes_of(&"web".into()).count(), 1);

    let entry = |actual: &ActualState| actual.entry(&name(), &"web".into()).unwrap().clone();
    assert!(entry(&actual).reconstructed && !entry(&actual).needs_remount);
    actual.apply(&name(), Transition::PodUncertain(record()));
    assert!(entry(&actual).reconstructed, "it is only being tried");
    actual.apply(&name(), Transition::PodMounted(record(), mounted()));
    assert!(!entry(&actual).reconstructed);
    actual.add_reconstructed(&name(), &"p".into(), &rebuilt(None), Some(record()));
    assert_eq!(pod(&actual), "mounted", "a mounted pod is not reconstructed again");
    actual.apply(&name(), Transition::PodUnmounted("web".into()));
    actual.apply(&name(), Transition::PodUncertain(record()));
    assert!(!entry(&actual).reconstructed);
}

#[test]
fn pod_is_listed_until_its_last_volume_is_unmounted() {
    let mut actual = state_after(&[Transition::PodUncertain(record())]);
    assert_eq!(actual.volume(&name()).unwrap().device_path, "dev");
    actual.apply(&"p/other".into(), attached(false, 0));
    actual.apply(&"p/other".into(), Transition::PodMounted(record(), mounted()));
    assert_eq!(actual.volumes_of(&"web".into()).count(), 2);
    actual.apply(&"p/other".into(), Transition::PodUnmounted("web".into()));
    assert_eq!(actual.volumes_of(&"web".into()).count(), 1);
    assert!(actual.has_pod(&"web".into()));
    actual.apply(&name(), Transition::PodFailed(record(), ErrorClass::Final));
    assert!(!actual.has_pod(&"web".into()));
    assert_eq!(actual.volumes_of(&"web".into()).count(), 0);
}
