//! The user of claims: writes and deletes them, takes snapshots and asks for attributes, as a user of a cluster does.

pub(crate) mod groups;

use std::collections::BTreeMap;

use api::snapshot::SnapshotSource;
use api::storage::{ClaimSpec, DataSource};
use api::{
    AttributesClass, Bytes, Claim, ClaimPhase, Class, Key, Kind, Meta, PersistentSource, Resource, Snapshot,
    SnapshotClass, SnapshotContent, Volume,
};
use contracts::event::Client;

use crate::api::SimulatedApi;
use crate::driver::{NAME, SIZE, SimulatedDriver};
use crate::objects;
use crate::script::{Attributes, Origin, Scenario};

/// The class of all claims.
const CLASS: &str = "fast";
/// The class of all snapshots.
const SNAPSHOTS: &str = "daily";

/// Writes the classes and the first claims.
pub(crate) fn furnish(api: &SimulatedApi, scenario: &Scenario) {
    let mut class = Class {
        meta: Meta::named("", CLASS),
        provisioner: NAME.to_owned(),
        reclaim: "Delete".to_owned(),
        wait_for_consumer: scenario.seed.is_multiple_of(2),
        ..Class::default()
    };
    class.parameters.insert("csi.storage.k8s.io/fstype".to_owned(), "ext4".to_owned());
    if scenario.secrets {
        for call in ["node-stage", "node-publish", "controller-publish", "provisioner"] {
            let (name, namespace) = objects::secret_name();
            class.parameters.insert(format!("csi.storage.k8s.io/{call}-secret-name"), name);
            class.parameters.insert(format!("csi.storage.k8s.io/{call}-secret-namespace"), namespace);
        }
    }
    api.put(class.into_object(), Client::Case);
    let snapshots = SnapshotClass {
        meta: Meta::named("", SNAPSHOTS),
        driver: NAME.to_owned(),
        deletion: "Delete".to_owned(),
        ..SnapshotClass::default()
    };
    api.put(snapshots.into_object(), Client::Case);
    if scenario.groups {
        groups::furnish(api);
    }
    for attributes in [Attributes::Gold, Attributes::Silver] {
        let class = AttributesClass {
            meta: Meta::named("", name(attributes)),
            driver: NAME.to_owned(),
            parameters: parameters(attributes),
        };
        api.put(class.into_object(), Client::Case);
    }
    (0..scenario.volumes.len()).for_each(|volume| add(api, scenario, volume, None, None));
}

/// The spec of a claim in this scenario.
pub(crate) fn spec(scenario: &Scenario, block: bool) -> ClaimSpec {
    ClaimSpec {
        access_modes: objects::modes(scenario),
        request: Bytes(SIZE),
        mode: objects::mode(block),
        class: Some(CLASS.to_owned()),
        ..ClaimSpec::default()
    }
}

/// Writes a claim, unless it exists: as a copy, where its source exists and fits.
pub(crate) fn add(
    api: &SimulatedApi,
    scenario: &Scenario,
    volume: usize,
    from: Option<Origin>,
    class: Option<Attributes>,
) {
    let claim = claim_name(volume);
    if api.find::<Claim>("default", &claim).is_some() {
        return;
    }
    let mut claim = Claim { meta: Meta::named("default", claim), ..Claim::default() };
    claim.spec = spec(scenario, scenario.volumes[volume]);
    claim.spec.attributes_class = class.map(name).unwrap_or_default().to_owned();
    if let Some((source, size)) = from.and_then(|from| source(api, scenario, volume, from)) {
        claim.spec.data_source = Some(source);
        claim.spec.request = size.max(Bytes(SIZE));
    }
    api.put(api.admitted(claim.into_object()), Client::Case);
}

/// The source of a copy and the size that the copy needs.
fn source(
    api: &SimulatedApi,
    scenario: &Scenario,
    volume: usize,
    from: Origin,
) -> Option<(DataSource, Bytes)> {
    let like = |other: usize| other != volume && scenario.volumes[other] == scenario.volumes[volume];
    match from {
        Origin::Volume(other) => {
            let claim = api.find::<Claim>("default", &claim_name(other)).filter(|_| like(other))?;
            let kind = "PersistentVolumeClaim".to_owned();
            let size = claim.spec.request.max(claim.status.capacity);
            Some((DataSource { kind, name: claim.meta.name.clone() }, size))
        }
        Origin::Snapshot(_) | Origin::Member(..) => {
            let snapshot = match from {
                Origin::Member(group, volume) => groups::member(api, group, volume),
                Origin::Snapshot(number) => api.find::<Snapshot>("default", &snapshot_name(number)),
                Origin::Volume(_) => None,
            }?;
            let SnapshotSource::Claim(of) = &snapshot.source else { return None };
            let of = (0..scenario.volumes.len()).find(|volume| claim_name(*volume) == *of)?;
            let kind = "VolumeSnapshot".to_owned();
            let size = snapshot.status.restore_size.unwrap_or_default();
            let fits = scenario.volumes[of] == scenario.volumes[volume];
            fits.then(|| (DataSource { kind, name: snapshot.meta.name.clone() }, size))
        }
    }
}

/// Whether a claim exists and is not being deleted.
pub(crate) fn is_there(api: &SimulatedApi, volume: usize) -> bool {
    api.find::<Claim>("default", &claim_name(volume)).is_some_and(|claim| !claim.meta.is_deleting())
}

pub(crate) fn delete(api: &SimulatedApi, volume: usize) {
    api.delete_by_user(&Key::namespaced(Kind::Claim, "default", claim_name(volume)));
}

/// Deletes the object of the volume that a claim is bound to.
pub(crate) fn delete_volume(api: &SimulatedApi, volume: usize) {
    if let Some(claim) = api.find::<Claim>("default", &claim_name(volume))
        && !claim.spec.volume.is_empty()
    {
        api.delete_by_user(&Key::cluster(Kind::Volume, &claim.spec.volume));
    }
}

/// Whether a claim has a volume that can be attached: one that is deleted cannot.
pub(crate) fn has_a_volume(api: &SimulatedApi, claim: &str) -> bool {
    let claim = api
        .find::<Claim>("default", claim)
        .filter(|claim| !claim.meta.is_deleting() && claim.status.phase == ClaimPhase::Bound);
    let volume = claim.and_then(|claim| api.find::<Volume>("", &claim.spec.volume));
    volume.is_some_and(|volume| !volume.meta.is_deleting())
}

/// Asks for a larger volume, where there is one.
pub(crate) fn grow(api: &SimulatedApi, volume: usize) {
    api.change_by_user("default", &claim_name(volume), |claim: &mut Claim| {
        if claim.status.phase == ClaimPhase::Bound {
            claim.spec.request = Bytes(claim.spec.request.max(claim.status.capacity).0 + SIZE);
        }
    });
}

pub(crate) fn modify(api: &SimulatedApi, volume: usize, class: Attributes) {
    api.change_by_user("default", &claim_name(volume), |claim: &mut Claim| {
        // An API server refuses to change a claim that is not bound.
        if claim.status.phase == ClaimPhase::Bound {
            claim.spec.attributes_class = name(class).to_owned();
        }
    });
}

/// Takes a snapshot of a claim, if there is one.
pub(crate) fn take_snapshot(api: &SimulatedApi, number: u32, volume: usize) {
    let claim = claim_name(volume);
    if api.find::<Claim>("default", &claim).is_none() {
        return;
    }
    let snapshot = Snapshot {
        meta: Meta::named("default", snapshot_name(number)),
        source: SnapshotSource::Claim(claim),
        class: Some(SNAPSHOTS.to_owned()),
        ..Snapshot::default()
    };
    api.put(api.admitted(snapshot.into_object()), Client::Case);
}

pub(crate) fn delete_snapshot(api: &SimulatedApi, number: u32) {
    api.delete_by_user(&Key::namespaced(Kind::Snapshot, "default", snapshot_name(number)));
}

/// Deletes everything that a user has written.
pub(crate) fn delete_all(api: &SimulatedApi) {
    let groups = api.all_of(Kind::GroupSnapshot).into_iter().map(|group| group.key());
    let snapshots = api.all::<Snapshot>().into_iter().map(|snapshot| snapshot.key());
    let snapshots = groups.chain(snapshots);
    let claims = api.all::<Claim>().into_iter().map(|claim| claim.key());
    snapshots.chain(claims).for_each(|key| api.delete_by_user(&key));
}

fn claim_name(volume: usize) -> String {
    format!("v{volume}")
}

fn snapshot_name(number: u32) -> String {
    format!("s{number}")
}

fn name(attributes: Attributes) -> &'static str {
    match attributes {
        Attributes::Gold => "gold",
        Attributes::Silver => "silver",
    }
}

fn parameters(attributes: Attributes) -> BTreeMap<String, String> {
    BTreeMap::from([("tier".to_owned(), name(attributes).to_owned())])
}

/// Wishes of users that are not met although nothing stands in the way any more. `used` says whether a pod on a node
/// uses a claim.
pub(crate) fn unmet(
    api: &SimulatedApi,
    driver: &SimulatedDriver,
    used: impl Fn(&str) -> bool,
) -> Vec<String> {
    let claims = api.all::<Claim>();
    let wishes = claims.iter().filter(|claim| !claim.meta.is_deleting());
    let claims = wishes.filter_map(|claim| {
        let why = match claim.status.phase {
            ClaimPhase::Bound => unmet_of_bound(api, driver, claim, used(&claim.meta.name))?,
            ClaimPhase::Pending if can_be_made(api, claim) && used(&claim.meta.name) => {
                "is not bound".to_owned()
            }
            ClaimPhase::Pending => return None,
            ClaimPhase::Lost => "has lost its volume".to_owned(),
        };
        Some(format!("claim {} {why}: {:?}", claim.meta.name, claim.status))
    });
    let snapshots = api.all::<Snapshot>();
    let snapshots = snapshots.iter().filter(|snapshot| !snapshot.meta.is_deleting());
    let snapshots = snapshots.filter(|snapshot| !snapshot.status.ready && is_begun(api, snapshot));
    let snapshots =
        snapshots.map(|snapshot| format!("{} is not ready: {:?}", snapshot.meta.name, snapshot.status));
    claims.chain(snapshots).chain(groups::unmet(api, driver)).collect()
}

/// Whether a snapshot has a content: its claim may be gone before.
fn is_begun(api: &SimulatedApi, snapshot: &Snapshot) -> bool {
    api.all::<SnapshotContent>().iter().any(|content| content.snapshot_uid == snapshot.meta.uid)
}

/// Whether the source of a claim's data, if it has one, is there and as it has to be.
fn can_be_made(api: &SimulatedApi, claim: &Claim) -> bool {
    let Some(source) = &claim.spec.data_source else { return true };
    if source.kind == "VolumeSnapshot" {
        let snapshot = api.find::<Snapshot>("default", &source.name);
        return snapshot.is_some_and(|snapshot| {
            let size = snapshot.status.restore_size.unwrap_or_default();
            !snapshot.meta.is_deleting() && snapshot.status.ready && size <= claim.spec.request
        });
    }
    let Some(source) = api.find::<Claim>("default", &source.name) else { return false };
    let volume = api.find::<Volume>("", &source.spec.volume);
    volume.is_some_and(|volume| !source.meta.is_deleting() && volume.capacity <= claim.spec.request)
}

fn unmet_of_bound(api: &SimulatedApi, driver: &SimulatedDriver, claim: &Claim, used: bool) -> Option<String> {
    let Some(volume) = api.find::<Volume>("", &claim.spec.volume) else {
        return Some("has no volume".to_owned());
    };
    let PersistentSource::Csi(csi) = &volume.source else { return None };
    if volume.meta.is_deleting() {
        return None;
    }
    let handle = csi.handle.as_str();
    let wanted = &claim.spec.attributes_class;
    if !wanted.is_empty()
        && (claim.status.attributes_class != *wanted
            || volume.attributes_class != *wanted
            || driver.attributes(handle).get("tier") != Some(wanted))
    {
        return Some(format!("has not the attributes of {wanted}"));
    }
    let waits_for_node = claim.status.resize.starts_with("NodeResize") && !used;
    if volume.capacity < claim.spec.request && !waits_for_node {
        return Some(format!("wants {} and its volume has {}", claim.spec.request, volume.capacity));
    }
    let size = driver.size(handle).filter(|_| used)?;
    if size < volume.capacity.0 {
        return Some(format!("has {size} bytes on its node and should have {}", volume.capacity));
    }
    let has_grown = claim.status.capacity >= claim.spec.request && claim.status.resize.is_empty();
    (!has_grown).then(|| "does not say that it has grown".to_owned())
}

/// The leftovers after everything was deleted.
pub(crate) fn leftovers(api: &SimulatedApi, driver: &SimulatedDriver) -> Vec<String> {
    let kinds = [
        Kind::Claim,
        Kind::Volume,
        Kind::GroupSnapshot,
        Kind::GroupSnapshotContent,
        Kind::Snapshot,
        Kind::SnapshotContent,
    ];
    let objects = kinds.into_iter().flat_map(|kind| api.all_of(kind));
    let objects = objects
        .map(|object| format!("{} is still there, held by {:?}", object.key(), object.meta().finalizers));
    let possessed = driver.possesses().into_iter().map(|id| format!("the driver still has {id}"));
    objects.chain(possessed).collect()
}
