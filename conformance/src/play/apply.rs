//! Applies changed manifests during a play, as `kubectl apply` and `kubectl delete` would: new objects are created, missing
//! ones deleted, and others changed as far as an API server allows.

use api::{
    AttributesClass, Bytes, Claim, Class, ConfigMap, GroupSnapshot, GroupSnapshotClass, GroupSnapshotContent,
    Kind, Object, Secret, Service, Snapshot, SnapshotClass, SnapshotContent, Volume,
};
use serde_json::Value;

use super::claims;
use super::files::Files;
use super::manifest;
use super::other_node::OTHER;
use super::session::Session;
use super::world::{NAMESPACE, World};
use testbed::failure::chain;

/// The change of an object against the files before.
enum Change<'a> {
    New(&'a Value),
    Changed(&'a Value),
    Missing(&'a Value),
}

impl Session<'_> {
    /// Applies changed files. Changes that cannot be applied are printed, and those objects stay as they were.
    pub(super) async fn apply(&mut self, text: &str) {
        let read = serde_json::from_str::<Vec<(String, String)>>(text).map_err(|error| error.to_string());
        let read =
            read.and_then(|files| Files::parse(&files).map_err(|(name, bad)| format!("{name}: {bad}")));
        let files = match read {
            Ok(files) => files,
            Err(why) => return self.print(format!("apply  nothing: {why}")),
        };
        let before = std::mem::replace(&mut self.files, files.clone());
        self.world.scenario.pods.clone_from(&files.scenario.pods);
        if let Err(error) = self.world.start_second_node().await {
            self.print(format!("apply  {OTHER} does not start: {error:#}"));
        }
        let (old, new) = (documents(&before), documents(&files));
        let changes = changes(&old, &new);
        // Other objects are created before the pods that need them, and deleted after them.
        let (pods, others): (Vec<_>, Vec<_>) = changes.into_iter().partition(|change| kind(change) == "Pod");
        let (missing, there): (Vec<_>, Vec<_>) =
            others.into_iter().partition(|change| matches!(change, Change::Missing(_)));
        for change in there.iter().chain(&pods).chain(&missing) {
            let what = match change {
                Change::New(document) | Change::Changed(document) | Change::Missing(document) => {
                    format!("{} {}", kind(change), manifest::name(document))
                }
            };
            match self.apply_one(change).await {
                Ok(how) => self.print(format!("apply  {what} {how}")),
                Err(why) => self.print(format!("apply  {what} stays as it is: {why}")),
            }
        }
        self.unsettle();
    }

    async fn apply_one(&mut self, change: &Change<'_>) -> Result<String, String> {
        match (kind(change), change) {
            ("Pod", Change::New(document)) => self.add_pod(document),
            ("Pod", Change::Missing(document)) => self.remove_pod(manifest::name(document)).await,
            ("Pod", Change::Changed(document)) => {
                self.remove_pod(manifest::name(document)).await?;
                self.add_pod(document)?;
                Ok(match self.world.is_on_other(manifest::name(document)) {
                    true => format!("is replaced, on {OTHER}"),
                    false => "is replaced".to_owned(),
                })
            }
            (_, Change::New(document)) => create(&self.world, document),
            (_, Change::Changed(document)) => update(&self.world, document),
            (_, Change::Missing(document)) => delete(&self.world, document),
        }
    }

    fn add_pod(&mut self, document: &Value) -> Result<String, String> {
        self.world.add(document).map(|()| "is created".to_owned()).map_err(|chain| chain.join(": "))
    }

    /// Deletes a pod, and waits until it is gone: its name may be used again at once.
    async fn remove_pod(&mut self, name: &str) -> Result<String, String> {
        self.end_containers(name);
        self.world.remove(name).await.map(|()| "is deleted".to_owned())
    }
}

/// Everything in files that can be changed.
fn documents(files: &Files) -> Vec<Value> {
    let of_kind = |kind: &'static str, all: &[Value]| -> Vec<Value> {
        let named = |document: &Value| {
            let mut document = document.clone();
            document["kind"] = kind.into();
            document
        };
        all.iter().map(named).collect()
    };
    let scenario = &files.scenario;
    let mut all = of_kind("ConfigMap", &scenario.config_maps);
    all.extend(of_kind("Secret", &scenario.secrets));
    all.extend(of_kind("Service", &scenario.services));
    all.extend(files.claims.clone());
    all.extend(of_kind("Pod", &scenario.pods));
    all
}

fn changes<'a>(old: &'a [Value], new: &'a [Value]) -> Vec<Change<'a>> {
    let key = |document: &Value| (document["kind"].clone(), manifest::name(document).to_owned());
    let find = |all: &'a [Value], one: &Value| all.iter().find(|other| key(other) == key(one));
    let there = new.iter().filter_map(|document| match find(old, document) {
        None => Some(Change::New(document)),
        Some(before) if before != document => Some(Change::Changed(document)),
        Some(_) => None,
    });
    let missing = old.iter().filter(|document| find(new, document).is_none()).map(Change::Missing);
    there.chain(missing).collect()
}

fn kind<'a>(change: &Change<'a>) -> &'a str {
    let (Change::New(document) | Change::Changed(document) | Change::Missing(document)) = change;
    document["kind"].as_str().unwrap_or_default()
}

fn object(world: &World, document: &Value) -> Result<Object, String> {
    let root = World::root_path(&world.layout).to_string_lossy().into_owned();
    let objects = manifest::objects(document.clone(), &root).map_err(|error| chain(&error).join(": "))?;
    objects.into_iter().next().ok_or_else(|| "there is no object in it".to_owned())
}

fn failed(error: api::ApiError) -> String {
    chain(&error).join(": ")
}

fn create(world: &World, document: &Value) -> Result<String, String> {
    let api = &world.api_server;
    let object = object(world, document)?;
    // A class that no file has is the driver's.
    let class = match &object {
        Object::Claim(claim) => claims::add_class(world, claim),
        Object::Snapshot(snapshot) => claims::add_snapshot_class(world, snapshot),
        Object::GroupSnapshot(group) => claims::add_group_snapshot_class(world, group),
        _ => Ok(()),
    };
    class.map_err(|error| format!("{error:#}"))?;
    let created = match object {
        Object::Claim(claim) => api.create(Claim::clone(&claim)).map(drop),
        Object::Class(class) => api.create(Class::clone(&class)).map(drop),
        Object::AttributesClass(class) => api.create(AttributesClass::clone(&class)).map(drop),
        Object::Snapshot(snapshot) => api.create(Snapshot::clone(&snapshot)).map(drop),
        Object::SnapshotClass(class) => api.create(SnapshotClass::clone(&class)).map(drop),
        Object::SnapshotContent(content) => api.create(SnapshotContent::clone(&content)).map(drop),
        Object::GroupSnapshot(group) => api.create(GroupSnapshot::clone(&group)).map(drop),
        Object::GroupSnapshotClass(class) => api.create(GroupSnapshotClass::clone(&class)).map(drop),
        Object::GroupSnapshotContent(content) => api.create(GroupSnapshotContent::clone(&content)).map(drop),
        Object::Volume(volume) => api.create(Volume::clone(&volume)).map(drop),
        Object::ConfigMap(map) => api.create(ConfigMap::clone(&map)).map(drop),
        Object::Secret(secret) => api.create(Secret::clone(&secret)).map(drop),
        Object::Service(service) => api.create(Service::clone(&service)).map(drop),
        other => return Err(format!("a {:?} cannot be added while it is played", other.kind())),
    };
    created.map(|()| "is created".to_owned()).map_err(failed)
}

fn update(world: &World, document: &Value) -> Result<String, String> {
    let api = &world.api_server;
    match object(world, document)? {
        Object::Claim(claim) => change(world, &claim),
        Object::ConfigMap(map) => {
            let change =
                |known: &mut ConfigMap| (known.data, known.binary) = (map.data.clone(), map.binary.clone());
            let changed = api.change(NAMESPACE, &map.meta.name, change);
            changed.map(|_| "has new content".to_owned()).map_err(failed)
        }
        Object::Secret(secret) => {
            let change = |known: &mut Secret| known.data = secret.data.clone();
            let changed = api.change(NAMESPACE, &secret.meta.name, change);
            changed.map(|_| "has new content".to_owned()).map_err(failed)
        }
        Object::Service(service) => {
            let change = |known: &mut Service| known.ports.clone_from(&service.ports);
            let changed = api.change(NAMESPACE, &service.meta.name, change);
            changed.map(|_| "has other ports".to_owned()).map_err(failed)
        }
        other => Err(format!("a {:?} cannot be changed; delete it, and make another", other.kind())),
    }
}

/// A claim can ask for more, for another class of attributes, and for less than a growth that failed: as an API server
/// has it, anything above its capacity.
fn change(world: &World, claim: &Claim) -> Result<String, String> {
    let name = &claim.meta.name;
    let known = world.api_server.get::<Claim>(NAMESPACE, name).ok_or("it is deleted")?;
    let (before, after, capacity) = (known.spec.request, claim.spec.request, known.status.capacity);
    let others = |claim: &Claim| {
        let spec = claim.spec.clone();
        (spec.access_modes, spec.mode, spec.data_source, spec.selector)
    };
    // What a manifest leaves out may have been filled in.
    let has_other_class = claim.spec.class.is_some() && claim.spec.class != known.spec.class;
    if others(&known) != others(claim) || has_other_class {
        let changeable = "`resources.requests.storage` and `volumeAttributesClassName`";
        return Err(format!("of a claim only {changeable} can be changed"));
    }
    let class = &claim.spec.attributes_class;
    let modifies = *class != known.spec.attributes_class;
    if after < before && after <= capacity {
        return Err(format!(
            "a claim never shrinks to its capacity: it has {capacity}, asks for {before}, and would ask for {after}"
        ));
    }
    if after == before && !modifies {
        return Err("nothing that can be changed of a claim has changed".to_owned());
    }
    let write = |claim: &mut Claim| {
        claim.spec.request = after;
        claim.spec.attributes_class.clone_from(class);
    };
    world.api_server.change(NAMESPACE, name, write).map_err(failed)?;
    Ok(match modifies {
        true => format!("asks for the attributes of `{class}`"),
        false => format!("asks for {} instead of {}", Bytes(after.0), before),
    })
}

fn delete(world: &World, document: &Value) -> Result<String, String> {
    let (api, name) = (&world.api_server, manifest::name(document));
    let deleted = match object(world, document)?.kind() {
        Kind::Claim => api.delete::<Claim>(NAMESPACE, name),
        Kind::Class => api.delete::<Class>("", name),
        Kind::AttributesClass => api.delete::<AttributesClass>("", name),
        Kind::Snapshot => api.delete::<Snapshot>(NAMESPACE, name),
        Kind::SnapshotClass => api.delete::<SnapshotClass>("", name),
        Kind::SnapshotContent => api.delete::<SnapshotContent>("", name),
        Kind::GroupSnapshot => api.delete::<GroupSnapshot>(NAMESPACE, name),
        Kind::GroupSnapshotClass => api.delete::<GroupSnapshotClass>("", name),
        Kind::GroupSnapshotContent => api.delete::<GroupSnapshotContent>("", name),
        Kind::Volume => api.delete::<Volume>("", name),
        Kind::ConfigMap => api.delete::<ConfigMap>(NAMESPACE, name),
        Kind::Secret => api.delete::<Secret>(NAMESPACE, name),
        Kind::Service => api.delete::<Service>(NAMESPACE, name),
        other => return Err(format!("a {other:?} cannot be deleted while it is played")),
    };
    deleted.map(|()| "is deleted".to_owned()).map_err(failed)
}
