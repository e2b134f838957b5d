//! The classes that a driver's manifest describes, and the deletion of claims and their volumes.

use std::sync::Arc;
use std::time::Duration;

use api::{
    Claim, ClaimPhase, Class, GroupSnapshot, GroupSnapshotClass, GroupSnapshotContent, Kind, Meta, Snapshot,
    SnapshotClass, SnapshotContent, Volume,
};

use super::Surroundings;
use crate::api_server::{NAMESPACE, ProvisionError};

/// Marks the class of claims that name none.
pub const IS_DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";

/// Marks the class of snapshots that name none.
pub const IS_DEFAULT_SNAPSHOT_CLASS: &str = "snapshot.storage.kubernetes.io/is-default-class";

/// Marks the class of group snapshots that name none.
pub const IS_DEFAULT_GROUP_SNAPSHOT_CLASS: &str = "groupsnapshot.storage.kubernetes.io/is-default-class";

/// The provisioner that made a volume, and deletes it.
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";

/// The time for the driver to delete the volumes and snapshots of claims.
const LIMIT: Duration = Duration::from_secs(30);

impl Surroundings {
    /// The class of volumes that the driver's manifest describes.
    ///
    /// # Errors
    /// When a file of secrets cannot be read.
    pub fn class(&self, name: &str, is_default: bool) -> Result<Class, ProvisionError> {
        let volume = &self.manifest().volume;
        let mut parameters = self.provisioner.secret_parameters()?;
        parameters.extend(volume.parameters.clone());
        if let Some(fs_type) = volume.fs_types.first() {
            parameters.insert("csi.storage.k8s.io/fstype".to_owned(), fs_type.clone());
        }
        Ok(Class {
            meta: class_meta(name, is_default.then_some(IS_DEFAULT_CLASS)),
            provisioner: self.driver_name().to_owned(),
            parameters,
            reclaim: "Delete".to_owned(),
            mount_options: volume.mount_options.clone(),
            allow_expansion: true,
            ..Class::default()
        })
    }

    /// The class of snapshots that the driver's manifest describes.
    ///
    /// # Errors
    /// When a file of secrets cannot be read.
    pub fn snapshot_class(&self, name: &str, is_default: bool) -> Result<SnapshotClass, ProvisionError> {
        Ok(SnapshotClass {
            meta: class_meta(name, is_default.then_some(IS_DEFAULT_SNAPSHOT_CLASS)),
            driver: self.driver_name().to_owned(),
            parameters: self.provisioner.snapshot_secret_parameters()?,
            deletion: "Delete".to_owned(),
        })
    }

    /// The class of group snapshots that the driver's manifest describes.
    ///
    /// # Errors
    /// When a file of secrets cannot be read.
    pub fn group_snapshot_class(
        &self,
        name: &str,
        is_default: bool,
    ) -> Result<GroupSnapshotClass, ProvisionError> {
        Ok(GroupSnapshotClass {
            meta: class_meta(name, is_default.then_some(IS_DEFAULT_GROUP_SNAPSHOT_CLASS)),
            driver: self.driver_name().to_owned(),
            parameters: self.provisioner.group_snapshot_secret_parameters()?,
            deletion: "Delete".to_owned(),
        })
    }

    /// Deletes all snapshots and claims, and waits until the driver has deleted their volumes. Returns those that are left.
    pub async fn claims_leave(&self) -> Vec<String> {
        let api = &self.api_server;
        // Those of a group go with their group only.
        for group in api.list::<GroupSnapshot>() {
            drop(api.delete::<GroupSnapshot>(NAMESPACE, &group.meta.name));
        }
        for snapshot in api.list::<Snapshot>() {
            drop(api.delete::<Snapshot>(NAMESPACE, &snapshot.meta.name));
        }
        let delete = |claim: &Arc<Claim>| {
            // A claim of a pod's own may be going already.
            drop(api.delete::<Claim>(NAMESPACE, &claim.meta.name));
        };
        // A snapshot stays as long as a claim waits to be made from it, and many drivers keep a volume that has one.
        let claims = api.list::<Claim>();
        claims.iter().filter(|claim| claim.status.phase == ClaimPhase::Pending).for_each(delete);
        let contents = || {
            let contents = api.list::<SnapshotContent>();
            let made = contents.iter().filter(|content| content.deletion == "Delete");
            made.map(|content| format!("snapshot content {}", content.meta.name)).collect()
        };
        let groups = || {
            let contents = api.list::<GroupSnapshotContent>();
            let made = contents.iter().filter(|content| content.deletion == "Delete");
            made.map(|content| format!("group snapshot content {}", content.meta.name)).collect()
        };
        let mut left = self.leave(Kind::GroupSnapshotContent, groups).await;
        left.extend(self.leave(Kind::SnapshotContent, contents).await);
        claims.iter().for_each(delete);
        let is_made = |volume: &&Arc<Volume>| {
            volume.reclaim == "Delete" && volume.meta.annotations.contains_key(PROVISIONED_BY)
        };
        let volumes = || {
            let volumes = api.list::<Volume>();
            let made = volumes.iter().filter(is_made);
            made.map(|volume| format!("volume {} ({})", volume.meta.name, volume.phase)).collect()
        };
        left.extend(self.leave(Kind::Volume, volumes).await);
        left
    }

    /// Waits until objects of a kind are gone. Returns those that are not.
    async fn leave(&self, kind: Kind, left: impl Fn() -> Vec<String>) -> Vec<String> {
        let mut changes = self.api_server.watch(kind);
        let gone = async {
            while !left().is_empty() {
                if changes.recv().await.is_none() {
                    return;
                }
            }
        };
        drop(tokio::time::timeout(LIMIT, gone).await);
        left()
    }
}

fn class_meta(name: &str, mark: Option<&str>) -> Meta {
    let mut meta = Meta::named("", name);
    meta.annotations.extend(mark.map(|mark| (mark.to_owned(), "true".to_owned())));
    meta
}
