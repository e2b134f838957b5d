//! Snapshots that a case takes, and volumes that it has copied: at its end they are deleted before their sources.

use std::collections::{BTreeMap, BTreeSet};

use std::time::Duration;

use serde_json::{Value, json};

use super::Bed;

/// Copies that a case has made and not yet deleted.
#[derive(Debug, Default)]
pub(super) struct Copies {
    /// Claims of volumes that are copies.
    pub(super) volumes: BTreeSet<String>,
    snapshots: BTreeSet<String>,
    /// Group snapshots, each with its snapshots.
    groups: BTreeMap<String, Vec<String>>,
}

/// Equal in all cases that meet it, as the key of each dead end.
const NEVER_READY: &str = "CreateSnapshot answers a snapshot that is never ready";

/// The wait for a snapshot to be ready after another one never was.
const SHORT: Duration = Duration::from_secs(1);

impl Bed {
    /// The time for a snapshot to be ready to use.
    pub(crate) fn patience_of_a_snapshot(&self) -> Duration {
        let is_known =
            self.known_dead_ends.contains(NEVER_READY) || self.made.dead_ends.borrow().contains(NEVER_READY);
        if is_known { SHORT } else { self.call_limit() }
    }

    /// Notes a snapshot that has taken longer, so that the next ones are not waited for as long.
    pub(crate) fn note_unready_snapshot(&self) {
        self.made.dead_ends.borrow_mut().insert(NEVER_READY.to_owned());
    }

    /// The end of the names of this case, which no other case has.
    pub(crate) fn tag(&self) -> &str {
        self.provisioner.tag()
    }

    /// A name for a snapshot or a group that no other case gives.
    pub(crate) fn snapshot_name(&self, name: &str) -> String {
        format!("snapshot-{name}{}", self.tag())
    }

    /// Notes the snapshots of an answer, so that they are deleted at the end.
    pub(crate) fn remember_snapshots(&self, said: &Value) {
        let mut copies = self.made.copies.borrow_mut();
        if let Some(id) = text(said, "/snapshot/snapshotId") {
            copies.snapshots.insert(id);
        }
        if let Some(id) = text(said, "/groupSnapshot/groupSnapshotId") {
            let members = said["groupSnapshot"]["snapshots"].as_array().into_iter().flatten();
            copies.groups.insert(id, members.filter_map(|member| text(member, "/snapshotId")).collect());
        }
    }

    /// Forgets a snapshot or a group that the driver has deleted.
    pub(crate) fn forget_snapshot(&self, id: &str) {
        let mut copies = self.made.copies.borrow_mut();
        copies.snapshots.remove(id);
        copies.groups.remove(id);
    }

    /// Deletes every snapshot that is left. Says what would not go.
    pub(super) async fn delete_snapshots(&self) -> Vec<String> {
        let (snapshots, groups) = {
            let mut copies = self.made.copies.borrow_mut();
            (std::mem::take(&mut copies.snapshots), std::mem::take(&mut copies.groups))
        };
        let mut left = Vec::new();
        for (group, members) in groups {
            let request = json!({ "groupSnapshotId": group, "snapshotIds": members });
            left.extend(self.delete_one("DeleteVolumeGroupSnapshot", request, &group).await);
            // Members may outlive their group.
        }
        for snapshot in snapshots {
            left.extend(
                self.delete_one("DeleteSnapshot", json!({ "snapshotId": snapshot }), &snapshot).await,
            );
        }
        left
    }

    async fn delete_one(&self, method: &str, request: Value, id: &str) -> Option<String> {
        match self.call(method, request).await {
            Ok(Ok(_)) => None,
            Ok(Err(status)) => Some(format!("{method} of {id}: {}", status.message())),
            Err(_) => Some(format!("{method} of {id} was not answered")),
        }
    }
}

fn text(said: &Value, part: &str) -> Option<String> {
    let found = said.pointer(part)?.as_str().filter(|found| !found.is_empty())?;
    Some(found.to_owned())
}
