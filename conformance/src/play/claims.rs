//! The claims, snapshots, classes and volumes of manifests: made as they are written, bound and provisioned by the controllers that
//! a cluster has, and deleted at the end. Writes to the API and nothing else.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use api::{
    AttributesClass, Claim, ClaimPhase, Class, Kind, Meta, Object, Snapshot, SnapshotClass, SnapshotContent,
    Volume,
};
use harness::testbed::Surroundings;

use super::files::{Files, NO_PROVISIONER};
use super::manifest;
use super::world::{NAMESPACE, World};

/// The class of claims that name none, where the manifests have no default class.
const DEFAULT: &str = "volproof";

/// Marks the class of claims that name none.
const IS_DEFAULT: &str = "storageclass.kubernetes.io/is-default-class";

/// Marks the class of snapshots that name none.
const IS_DEFAULT_FOR_SNAPSHOTS: &str = "snapshot.storage.kubernetes.io/is-default-class";

/// The provisioner that made a volume, and deletes it.
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";

/// How long claims may take to be bound before their pods come, and volumes to be deleted.
const LIMIT: Duration = Duration::from_secs(30);

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
                        class.meta.annotations.get(IS_DEFAULT).is_some_and(|value| value == "true");
                    classes.insert(class.meta.name.clone());
                    api.create(Class::clone(&class))?;
                }
                Object::Volume(volume) => {
                    // It may be written down for claims of a class without any object.
                    classes.insert(volume.class.clone());
                    api.create(Volume::clone(&volume))?;
                }
                Object::Claim(claim) => named.extend(claim.spec.class.clone()),
                Object::AttributesClass(class) => _ = api.create(AttributesClass::clone(&class))?,
                Object::SnapshotClass(class) => _ = api.create(SnapshotClass::clone(&class))?,
                Object::SnapshotContent(content) => _ = api.create(SnapshotContent::clone(&content))?,
                _ => {}
            }
        }
    }
    for name in named.difference(&classes).filter(|name| !name.is_empty()) {
        api.create(class_of_driver(around, name, false)?)?;
    }
    if !has_default {
        api.create(class_of_driver(around, DEFAULT, true)?)?;
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
                _ => {}
            }
        }
    }
    Ok(())
}

/// Makes the class that a snapshot names, or the default one, where no file has it.
fn add_snapshot_class(around: &Surroundings, snapshot: &Snapshot) -> Result<()> {
    let api = &around.api_server;
    let is_default =
        |class: &Arc<SnapshotClass>| class.meta.annotations.contains_key(IS_DEFAULT_FOR_SNAPSHOTS);
    let (name, is_there) = match &snapshot.class {
        Some(name) => (name.as_str(), api.get::<SnapshotClass>("", name).is_some()),
        None => (DEFAULT, api.list::<SnapshotClass>().iter().any(is_default)),
    };
    if is_there {
        return Ok(());
    }
    let mut meta = Meta::named("", name);
    if snapshot.class.is_none() {
        meta.annotations.insert(IS_DEFAULT_FOR_SNAPSHOTS.to_owned(), "true".to_owned());
    }
    api.create(SnapshotClass {
        meta,
        driver: around.driver_name().to_owned(),
        parameters: around.provisioner.snapshot_secret_parameters()?,
        deletion: "Delete".to_owned(),
    })?;
    Ok(())
}

fn class_of_driver(around: &Surroundings, name: &str, is_default: bool) -> Result<Class> {
    let mut meta = Meta::named("", name);
    if is_default {
        meta.annotations.insert(IS_DEFAULT.to_owned(), "true".to_owned());
    }
    let volume = &around.manifest().volume;
    let mut parameters = around.provisioner.secret_parameters()?;
    parameters.extend(volume.parameters.clone());
    if let Some(fs_type) = volume.fs_types.first() {
        parameters.insert("csi.storage.k8s.io/fstype".to_owned(), fs_type.clone());
    }
    Ok(Class {
        meta,
        provisioner: around.driver_name().to_owned(),
        parameters,
        reclaim: "Delete".to_owned(),
        mount_options: volume.mount_options.clone(),
        allow_expansion: true,
        ..Class::default()
    })
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
        // Those that cannot be are told of by events, and their pods wait.
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

    /// Deletes all snapshots and claims, and waits until the driver has deleted what was made for them. Returns what it
    /// has not.
    pub(super) async fn claims_leave(&self) -> Vec<String> {
        let api = &self.api_server;
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
        let mut left = self.leave(Kind::SnapshotContent, contents).await;
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
