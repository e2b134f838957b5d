//! The invariants of the volume manager and of a cluster's controllers that a trace can break.
//!
//! One file a group. Each rule is tested with a trace that keeps it and one that breaks it.

use crate::rule::Rule;

mod attachment;
mod attempt;
mod back_off;
mod block;
mod claims;
mod cluster;
mod content;
mod damage;
mod entitled;
mod overlap;
mod paths;
mod prompt;
mod recovery;
mod requests;
mod staging;
mod teardown;
mod uncertain;

pub use attachment::may_be_here;

/// Every rule that binds the manager, by number.
pub const RULES: &[&Rule] = &[
    &staging::PUBLISH_AFTER_STAGE,
    &attachment::ATTACHED_BEFORE_USE,
    &teardown::UNSTAGE_LAST,
    &attachment::IN_USE_UNTIL_UNSTAGED,
    &attachment::IN_USE_BEFORE_USE,
    &teardown::EVERY_PUBLISH_IS_UNDONE,
    &teardown::EVERY_STAGE_IS_UNDONE,
    &attachment::ATTACHMENTS_ARE_NOT_OURS,
    &overlap::UNMOUNT_FIRST,
    &overlap::ONE_OPERATION_A_VOLUME,
    &overlap::NO_UNMOUNT_DURING_MOUNT,
    &staging::STAGED_ONCE,
    &staging::ALL_OR_NOT_READY,
    &teardown::NOT_WHILE_IT_RUNS,
    &entitled::USED_VOLUMES_ONLY,
    &teardown::FINAL_MEANS_UNPUBLISHED,
    &uncertain::UNKNOWN_IS_UNCERTAIN,
    &uncertain::FAILED_LEAVES_NOTHING,
    &uncertain::NEVER_FORGOTTEN,
    &attempt::NOTHING_RISKED,
    &uncertain::REMOUNT_KEEPS_MOUNTED,
    &uncertain::UNCERTAIN_IS_CLEARED,
    &uncertain::FAILED_UNMOUNT_IS_KEPT,
    &uncertain::FAILED_UNSTAGE_IS_UNCERTAIN,
    &back_off::LADDER,
    &prompt::OWN_BACK_OFF_ONLY,
    &prompt::IN_ITS_TURN,
    &back_off::EACH_FAILURE_HAS_AN_EVENT,
    &claims::NOT_WHILE_GOING,
    &claims::ONLY_WHAT_IS_BOUND,
    &entitled::OWN_CLAIM_ONLY,
    &claims::AS_IT_IS_MEANT,
    &entitled::WITHIN_REACH,
    &attachment::ONE_POD_ONLY,
    &requests::ONE_PUBLISH_A_POD,
    &staging::ONE_LABEL_AT_A_TIME,
    &recovery::UNDONE_WHEN_KNOWN,
    &prompt::MOUNTED_MEANWHILE,
    &staging::WANTED_STAYS,
    &staging::PUBLISHED_IN_THIS_LIFE,
    &requests::UNDONE_AS_DONE,
    &attachment::LISTED_WHEN_KNOWN,
    &content::WANTED_STAYS_ON_DISK,
    &content::NOT_THROUGH_A_MOUNT,
    &paths::ONE_PATH_A_VOLUME,
    &paths::TARGET_IS_THE_DRIVERS,
    &paths::METADATA_OUTLIVES,
    &paths::NOTHING_REMAINS,
    &requests::CONTEXT_IS_THE_VOLUMES,
    &requests::PUBLISH_CONTEXT_IS_THE_ATTACHMENTS,
    &requests::SECRETS_WHERE_THEY_BELONG,
    &requests::SAME_CAPABILITY,
    &requests::SAME_CONTEXT_AGAIN,
    &requests::NOTHING_IS_EMPTY,
    &block::MAPPED_IS_COMPLETE,
    &block::UNMAPPED_FROM_OUTSIDE,
    &block::UNSTAGED_WHEN_UNMAPPED,
    &staging::EXPANDED_WHEN_PUBLISHED,
    &claims::READ_ONLY_DOES_NOT_GROW,
    &claims::CAPACITY_ONLY_GROWS,
    &staging::REFUSED_IN_USE_IS_FINAL,
    &attempt::NOT_GROWN_IS_UNCERTAIN,
    &content::NOTHING_OUTSIDE,
    &teardown::SUBPATHS_FIRST,
    &content::NOT_OURS_TO_OWN,
    &content::EMPTY_WITH_ITS_POD,
    &content::LOCAL_IS_THE_USERS,
    &attachment::DETACHED_WHEN_UNUSED,
    &attachment::NOT_ATTACHED_WHEN_DETACHING,
    &attachment::ATTACHED_TO_ONE,
    &claims::PROTECTED_WHILE_USED,
    &recovery::UNDONE_WITHOUT_ATTACHMENT,
    &prompt::MOUNTED_AT_ONCE,
    &prompt::TAKEN_BACK_AT_ONCE,
    &prompt::STUCK_ALONE,
    &teardown::BOOKS_ARE_EMPTY,
];

/// Every rule that binds the controllers of a cluster, by number.
pub const CLUSTER: &[&Rule] = &[
    &cluster::claims::RESERVED_BEFORE_BOUND,
    &cluster::claims::ONE_CLAIM_A_VOLUME,
    &cluster::reclaim::EVERY_VOLUME_HAS_AN_OBJECT,
    &cluster::reclaim::DELETED_WHEN_RELEASED,
    &cluster::reclaim::OBJECT_OUTLIVES_VOLUME,
    &cluster::claims::PROTECTED_WHILE_BOUND,
    &cluster::claims::COLLECTED_WITH_ITS_POD,
    &cluster::growth::ALLOCATED_BEFORE_EXPANDED,
    &cluster::growth::CAPACITY_IS_GRANTED,
    &cluster::growth::MODIFIED_UNTIL_KNOWN,
    &cluster::copies::ANNOUNCED_BEFORE_TAKEN,
    &cluster::copies::CONTENT_OUTLIVES_SNAPSHOT,
    &cluster::copies::NOT_WHILE_RESTORED,
    &cluster::copies::SOURCE_IS_KEPT,
    &cluster::reclaim::FINALIZERS_BEFORE_ATTACHED,
    &cluster::groups::ANNOUNCED_BEFORE_TAKEN,
    &cluster::groups::CONTENT_OUTLIVES_GROUP,
    &cluster::groups::MEMBER_GOES_WITH_ITS_GROUP,
    &cluster::groups::NOT_WHILE_RESTORED,
];

/// All of them, by number.
pub fn all() -> impl Iterator<Item = &'static Rule> + Clone {
    RULES.iter().chain(CLUSTER).copied()
}

/// Whether an invariant binds the controllers of a cluster, and not the volume manager of a node.
pub fn binds_controllers(id: &str) -> bool {
    CLUSTER.iter().any(|rule| rule.id == id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_has_its_own_number_and_they_are_in_order() {
        let ids: Vec<&str> = all().map(|rule| rule.id).collect();
        assert!(ids.is_sorted() && ids.windows(2).all(|pair| pair[0] != pair[1]), "{ids:?}");
    }

    /// The invariants of the specification are numbered from 1 to this.
    const LAST: usize = 105;

    #[test]
    fn each_invariant_is_a_rule_or_says_why_it_is_none() {
        let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/behaviour/10-invariants.md");
        let document = std::fs::read_to_string(document).unwrap();
        let (_, table) = document.split_once("## Invariants that no trace shows").unwrap();
        let table = table.split("\n## ").next().unwrap();
        let without: String = table.lines().filter_map(|row| row.split('|').nth(1)).collect();
        for number in 1..=LAST {
            let id = format!("INV-{number:03}");
            let is_rule = all().any(|rule| rule.id == id);
            assert_ne!(is_rule, without.contains(&id), "{id}: a rule, or a row of the table, and not both");
        }
    }
}
