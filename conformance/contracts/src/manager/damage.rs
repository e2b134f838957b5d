//! Paths that the manager cannot identify because their record was damaged or lost. No rule demands that they are undone.
//!
//! The trace has an event for it: [`Disturbance::RecordDamaged`](crate::event::Disturbance::RecordDamaged), or `RecordLost`
//! if the record is gone. A path of a volume that has a PersistentVolume still has to be undone, unless the record is gone
//! and nothing is mounted there.

use crate::rule::Books;
use crate::rule::place::Place;

/// Whether the manager cannot identify a path: its record was damaged and no object names the volume; or the record
/// is gone and nothing is mounted there, so nothing shows that a step was begun.
pub(super) fn is_unidentifiable(books: &Books, volume: &str, path: &str) -> bool {
    let is_lost = || Place::of(path).is_some_and(|place| books.lost.contains(&place.metadata()));
    let is_lost_and_unmounted = || is_lost() && !books.mounts.contains_key(path);
    has_damaged_record(books, path) && (books.persistent_volume(volume).is_none() || is_lost_and_unmounted())
}

/// Whether the record of a path was damaged or lost.
pub(super) fn has_damaged_record(books: &Books, path: &str) -> bool {
    Place::of(path).is_some_and(|place| books.damaged.contains(&place.metadata()))
}

#[cfg(test)]
mod tests {
    use crate::manager::teardown::{EVERY_PUBLISH_IS_UNDONE, EVERY_STAGE_IS_UNDONE};
    use crate::rule::script::{breaks, keeps};

    const VOLUME: &str = r#"api create PersistentVolume pv-v1 case {"spec":{"csi":{"volumeHandle":"v1"}}}"#;
    const NOT_UNPUBLISHED: &str = "a target of a pod that is gone was not unpublished";

    #[test]
    fn volume_with_a_persistent_volume_is_unpublished_without_its_record() {
        let rule = &EVERY_PUBLISH_IS_UNDONE;
        let begin = format!("{VOLUME}\nmount target:v1/a\npublish v1 a\n");
        for damage in ["step damage data:v1/a", "step lose data:v1/a"] {
            breaks(rule, NOT_UNPUBLISHED, &[&begin, damage].concat(), &[]);
        }
    }

    #[test]
    fn target_is_unpublished_once_its_damaged_record_is_rewritten() {
        let rule = &EVERY_PUBLISH_IS_UNDONE;
        let damaged = "mount target:v1/a\npublish v1 a\nstep damage data:v1/a\n";
        keeps(rule, damaged, &[]);
        breaks(rule, NOT_UNPUBLISHED, &[damaged, "write data:v1/a"].concat(), &[]);
        breaks(rule, NOT_UNPUBLISHED, "publish v1 a\nstep damage data:v1/b", &[]);
    }

    #[test]
    fn lost_record_without_a_mount_excuses_a_missing_unstage() {
        let rule = &EVERY_STAGE_IS_UNDONE;
        let not_unstaged = "a volume that no pod uses was not unstaged";
        let begin = format!("{VOLUME}\nstage v1 Aborted\n");
        keeps(rule, &[&begin, "step lose data:v1"].concat(), &[]);
        keeps(rule, &[&begin, "step lose data:v1\nwrite data:v1"].concat(), &[]);
        breaks(rule, not_unstaged, &[&begin, "step damage data:v1"].concat(), &[]);
        breaks(rule, not_unstaged, &[&begin, "mount staging:v1\nstep lose data:v1"].concat(), &[]);
    }
}
