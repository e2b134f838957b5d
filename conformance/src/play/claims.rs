//! The claims, snapshots, classes and volumes of manifests: made as they are written, bound and provisioned by the controllers that
//! a cluster has, and deleted at the end. Writes to the API and nothing else.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use api::{
    AttributesClass, Claim, ClaimPhase, Class, GroupSnapshot, GroupSnapshotClass, GroupSnapshotContent, Kind,
    Object, Snapshot, SnapshotClass, SnapshotContent, Volume,
};
use harness::testbed::{
    IS_DEFAULT_CLASS, IS_DEFAULT_GROUP_SNAPSHOT_CLASS, IS_DEFAULT_SNAPSHOT_CLASS, Surroundings,
};

use super::files::{Files, NO_PROVISIONER};
use super::manifest;
use super::world::World;

/// The class of claims that name none, where the manifests have no default class.
const DEFAULT: &str = "volproof";

/// Makes classes, volumes and claims. A class that claims name and no file has is the driver's, as its manifest
/// describes its volumes.
pub(super) fn create(around: &Surroundings, files: &Files) -> Result<()> {
    let api = &around.api_server;
    let (mut classes, mut named) = (BTreeSet::new(), BTreeSet::new());
    let mut has_default = false;
    let root = World::root_path(&around.layout).to_string_lossy().into_owned();
    let read = |document| manifest::objects(document, &root);
    for document in &files.claims {
        for object in read(document.clone())? {
            match object {
                Object::Class(class) => {
                    has_default |=
                        class.meta.annotations.get(IS_DEFAULT_CLASS).is_some_and(|value| value == "true");
                    classes.insert(class.meta.name.clone());
                    api.create(Class::clone(&class))?;
                }
                Object::Volume(volume) => {
                    // Volumes and claims may name a class that has no object.
                    classes.insert(volume.class.clone());
                    api.create(Volume::clone(&volume))?;
                }
                Object::Claim(claim) => named.extend(claim.spec.class.clone()),
                Object::AttributesClass(class) => _ = api.create(AttributesClass::clone(&class))?,
                Object::SnapshotClass(class) => _ = api.create(SnapshotClass::clone(&class))?,
                Object::SnapshotContent(content) => _ = api.create(SnapshotContent::clone(&content))?,
                Object::GroupSnapshotClass(class) => _ = api.create(GroupSnapshotClass::clone(&class))?,
                Object::GroupSnapshotContent(content) => {
                    api.create(GroupSnapshotContent::clone(&content))?;
                }
                _ => {}
            }
        }
    }
    for name in named.difference(&classes).filter(|name| !name.is_empty()) {
        api.create(around.class(name, false)?)?;
    }
    if !has_default {
        api.create(around.class(DEFAULT, true)?)?;
    }
    for document in &files.claims {
        for object in read(document.clone())? {
            match object {
                Object::Claim(claim) => _ = api.create(Claim::clone(&claim))?,
                Object::Snapshot(snapshot) => {
                    let snapshot = Snapshot::clone(&snapshot);
                    add_snapshot_class(around, &snapshot)?;
                    api.create(snapshot)?;
                }
                Object::GroupSnapshot(group) => {
                    add_group_snapshot_class(around, &group)?;
                    api.create(GroupSnapshot::clone(&group))?;
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// Creates the class that a claim names, if no file has it.
pub(super) fn add_class(around: &Surroundings, claim: &Claim) -> Result<()> {
    let name = claim.spec.class.as_deref().unwrap_or_default();
    // Volumes and claims may name a class that has no object.
    let is_of_volume = |volume: &Arc<Volume>| volume.class == name;
    let api = &around.api_server;
    if name.is_empty()
        || api.get::<Class>("", name).is_some()
        || api.list::<Volume>().iter().any(is_of_volume)
    {
        return Ok(());
    }
    api.create(around.class(name, false)?)?;
    Ok(())
}

/// Creates the class that a snapshot names, or the default one, if no file has it.
pub(super) fn add_snapshot_class(around: &Surroundings, snapshot: &Snapshot) -> Result<()> {
    let api = &around.api_server;
    let is_default =
        |class: &Arc<SnapshotClass>| class.meta.annotations.contains_key(IS_DEFAULT_SNAPSHOT_CLASS);
    let (name, is_there) = match &snapshot.class {
        Some(name) => (name.as_str(), api.get::<SnapshotClass>("", name).is_some()),
        None => (DEFAULT, api.list::<SnapshotClass>().iter().any(is_default)),
    };
    if is_there {
        return Ok(());
    }
    api.create(around.snapshot_class(name, snapshot.class.is_none())?)?;
    Ok(())
}

/// Creates the class that a group snapshot names, or the default one, if no file has it.
pub(super) fn add_group_snapshot_class(around: &Surroundings, group: &GroupSnapshot) -> Result<()> {
    let api = &around.api_server;
    let is_default = |class: &Arc<GroupSnapshotClass>| {
        class.meta.annotations.contains_key(IS_DEFAULT_GROUP_SNAPSHOT_CLASS)
    };
    let (name, is_there) = match &group.class {
        Some(name) => (name.as_str(), api.get::<GroupSnapshotClass>("", name).is_some()),
        None => (DEFAULT, api.list::<GroupSnapshotClass>().iter().any(is_default)),
    };
    if is_there {
        return Ok(());
    }
    api.create(around.group_snapshot_class(name, group.class.is_none())?)?;
    Ok(())
}

impl World {
    /// Waits until the claims are bound that need no pod for that, as a scheduler does before it gives a pod a node.
    pub(super) async fn claims_are_bound(&self) {
        let mut changes = self.api_server.watch(Kind::Claim);
        let bound = async {
            while !self.api_server.list::<Claim>().iter().all(|claim| self.is_bound_or_waits(claim)) {
                if changes.recv().await.is_none() {
                    return;
                }
            }
        };
        // Claims that cannot be bound have events, and their pods wait.
        drop(tokio::time::timeout(Duration::from_secs(2), bound).await);
    }

    fn is_bound_or_waits(&self, claim: &Arc<Claim>) -> bool {
        let class = claim.spec.class.as_deref().unwrap_or_default();
        let waits = || {
            let class = self.api_server.get::<Class>("", class);
            class.is_some_and(|class| class.wait_for_consumer || class.provisioner == NO_PROVISIONER)
        };
        claim.status.phase == ClaimPhase::Bound || waits()
    }
}
