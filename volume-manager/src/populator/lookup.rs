//! Reads the claims and PersistentVolumes of a pod from the API, and checks whether the pod may use them.
//!
//! Always reads from the API, never from a cache: a claim that was just deleted must not be mounted again. The
//! error texts are the kubelet's: people search for them.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::names::OuterName;
use api::{
    ApiSource, Bytes, Claim, ClaimPhase, Pod, PodVolume, Volume, VolumeMode, VolumeSource, protection,
};
use plugin_api::Spec;

use super::DuePod;

/// The result of resolving a pod.
#[derive(Debug, Clone)]
pub struct Resolved {
    /// The pod as it was at the start.
    pub pod: Arc<Pod>,
    /// The number of this resolution.
    pub number: u64,
    /// Each volume that a container uses, or the error about it.
    pub volumes: Vec<(OuterName, Result<Found, String>)>,
}

/// A volume that a pod may use.
#[derive(Debug, Clone)]
pub struct Found {
    /// The volume's spec for the plugin.
    pub spec: Spec,
    /// The supplemental group of the volume, as written in its annotation.
    pub gid: Option<String>,
    /// The capacity in the claim's status; `None` without a claim.
    pub claim_capacity: Option<Bytes>,
}

const GID_ANNOTATION: &str = "pv.beta.kubernetes.io/gid";

/// Resolves every volume of a pod that a container uses. Other volumes are not looked up.
pub async fn resolve(look: DuePod, api: Arc<dyn ApiSource>) -> Resolved {
    let DuePod { pod, number, .. } = look;
    let (mounted, devices) = (pod.mounted(), pod.devices());
    let mut volumes = Vec::new();
    for volume in &pod.volumes {
        if mounted.contains(&volume.name) || devices.contains(&volume.name) {
            let found = find(&pod, volume, &*api).await;
            let found = found.and_then(|found| check_mode(volume, found, &mounted, &devices));
            volumes.push((volume.name.clone(), found));
        }
    }
    Resolved { pod, number, volumes }
}

/// Whether resolving a pod takes no API call.
pub fn is_local(pod: &Pod) -> bool {
    pod.claims().next().is_none()
}

async fn find(pod: &Pod, volume: &PodVolume, api: &dyn ApiSource) -> Result<Found, String> {
    let Some(name) = pod.claim(volume) else {
        let spec = Spec::inline(Arc::new(volume.clone()));
        return Ok(Found { spec, gid: None, claim_capacity: None });
    };
    let (read_only, owned) = match &volume.source {
        VolumeSource::Claim { read_only, .. } => (*read_only, false),
        _ => (false, true),
    };
    let namespace = &pod.meta.namespace;
    let in_claim = |error: String| format!("error processing PVC {namespace}/{name}: {error}");
    let claim = api::get::<Claim>(api, namespace, &name)
        .await
        .map_err(|error| in_claim(format!("failed to fetch PVC from API server: {error}")))?;
    check_claim(&claim).map_err(in_claim)?;
    if owned {
        check_owner(pod, &claim)?;
    }
    let volume = api::get::<Volume>(api, "", &claim.spec.volume).await.map_err(|error| {
        format!("error fetching PV \"{}\" (PVC {namespace}/{name}): {error}", claim.spec.volume)
    })?;
    check_binding(&claim, &volume)?;
    let gid = volume.meta.annotations.get(GID_ANNOTATION).cloned();
    let spec = Spec::persistent(volume, read_only);
    Ok(Found { spec, gid, claim_capacity: Some(claim.status.capacity) })
}

/// Fails if a claim may not be used. A claim that is being deleted may be used as long as it has the protection
/// finalizer, which keeps it for pods that had it before the node restarted.
fn check_claim(claim: &Claim) -> Result<(), String> {
    if claim.meta.is_deleting() && !claim.meta.has_finalizer(protection::CLAIM) {
        return Err("PVC is being deleted".to_owned());
    }
    if claim.status.phase != ClaimPhase::Bound {
        return Err("PVC is not bound".to_owned());
    }
    if claim.spec.volume.is_empty() {
        return Err("PVC has empty pvc.Spec.VolumeName".to_owned());
    }
    Ok(())
}

/// Fails if the pod does not control the claim of its generic ephemeral volume.
fn check_owner(pod: &Pod, claim: &Claim) -> Result<(), String> {
    if claim.meta.controller().is_some_and(|owner| owner.uid == pod.meta.uid) {
        return Ok(());
    }
    Err(format!(
        "PVC {}/{} was not created for pod {}/{} (pod is not owner)",
        claim.meta.namespace, claim.meta.name, pod.meta.namespace, pod.meta.name
    ))
}

/// Fails if the PersistentVolume is bound to another claim, such as a deleted one of the same name.
fn check_binding(claim: &Claim, volume: &Volume) -> Result<(), String> {
    let (name, uid) = (&volume.meta.name, &claim.meta.uid);
    let Some(reference) = &volume.claim else {
        return Err(format!(
            "found PV object \"{name}\" but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to the claim"
        ));
    };
    if &reference.uid != uid {
        return Err(format!(
            "found PV object \"{name}\" but its pv.Spec.ClaimRef.UID \"{}\" does not point to claim.UID \"{uid}\"",
            reference.uid
        ));
    }
    Ok(())
}

/// Fails if a container mounts a block volume or maps a filesystem volume. A volume that is used both ways
/// always fails.
fn check_mode(
    volume: &PodVolume,
    found: Found,
    mounted: &BTreeSet<OuterName>,
    devices: &BTreeSet<OuterName>,
) -> Result<Found, String> {
    let name = &volume.name;
    if found.spec.volume().is_some_and(|volume| volume.mode.is_none()) {
        return Err(format!("cannot get volumeMode for volume: {name}"));
    }
    let mode = found.spec.mode();
    if mounted.contains(name) && mode != VolumeMode::Filesystem {
        return Err(format!("volume {name} has volumeMode {mode}, but is specified in volumeMounts"));
    }
    if devices.contains(name) && mode != VolumeMode::Block {
        return Err(format!("volume {name} has volumeMode {mode}, but is specified in volumeDevices"));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use api::pod::{Content, VolumeMount};
    use api::storage::ClaimTemplate;
    use api::{Container, Meta, Owner};

    use super::*;
    use testing::MemoryApi;

    /// A pod whose containers use all its volumes but the last.
    fn pod(sources: Vec<VolumeSource>) -> Pod {
        let volume = |(index, source)| PodVolume { name: format!("v{index}").as_str().into(), source };
        let volumes: Vec<_> = sources.into_iter().enumerate().map(volume).collect();
        let used = volumes.split_last().map(|(_, used)| used).unwrap_or_default();
        let mounts = used
            .iter()
            .map(|volume| VolumeMount { volume: volume.name.to_string(), ..VolumeMount::default() });
        let container = Container { mounts: mounts.collect(), ..Container::default() };
        Pod { meta: Meta::named("default", "web"), volumes, containers: vec![container], ..Pod::default() }
    }

    fn secret() -> VolumeSource {
        VolumeSource::Secret(Content::default())
    }

    #[test]
    fn only_claims_need_the_api() {
        let claim = || VolumeSource::Claim { claim: "c".to_owned(), read_only: false };
        let ephemeral = || VolumeSource::Ephemeral { template: Box::new(ClaimTemplate::default()) };
        for (sources, local) in [
            (vec![], true),
            (vec![secret(), secret()], true),
            (vec![secret(), claim()], false),
            (vec![ephemeral(), secret()], false),
        ] {
            assert_eq!(is_local(&pod(sources)), local);
        }
    }

    #[test]
    fn volume_mode_must_match_its_use() {
        let volume = PodVolume { name: "v".into(), source: secret() };
        let used: BTreeSet<OuterName> = ["v".into()].into();
        for (mode, mounted, device) in
            [(VolumeMode::Filesystem, true, false), (VolumeMode::Block, false, true)]
        {
            let of = |is_used: bool| if is_used { used.clone() } else { BTreeSet::new() };
            let check = |mounted: bool, device: bool| {
                let object = api::Volume { mode: Some(mode), ..Default::default() };
                let spec = Spec::persistent(Arc::new(object), false);
                let found = Found { spec, gid: None, claim_capacity: None };
                check_mode(&volume, found, &of(mounted), &of(device)).map(drop)
            };
            assert_eq!(check(mounted, device), Ok(()), "{mode}");
            assert!(check(device, mounted).is_err(), "{mode}");
            assert!(check(true, true).is_err(), "{mode}");
            assert_eq!(check(false, false), Ok(()), "no container uses it");
        }
    }

    #[test]
    fn inline_volume_cannot_be_a_device() {
        let volume = PodVolume { name: "v".into(), source: secret() };
        let used: BTreeSet<OuterName> = ["v".into()].into();
        let spec = Spec::inline(Arc::new(volume.clone()));
        let found = || Found { spec: spec.clone(), gid: None, claim_capacity: None };
        assert!(check_mode(&volume, found(), &used, &BTreeSet::new()).is_ok());
        let refused = check_mode(&volume, found(), &BTreeSet::new(), &used).map(drop);
        let expected = "volume v has volumeMode Filesystem, but is specified in volumeDevices";
        assert_eq!(refused, Err(expected.to_owned()));
    }

    #[test]
    fn ephemeral_claim_must_be_controlled_by_its_pod() {
        let mut web = pod(vec![]);
        web.meta.uid = "u1".to_owned();
        let owner = |uid: &str, controller| Owner { uid: uid.to_owned(), controller, ..Owner::default() };
        for (owners, is_own) in [
            (vec![owner("u1", true)], true),
            (vec![owner("u2", false), owner("u1", true)], true),
            (vec![owner("u1", false)], false),
            (vec![owner("u1", false), owner("u2", true)], false),
            (vec![], false),
        ] {
            let meta = Meta { owners: owners.clone(), ..Meta::named("default", "web-v") };
            let claim = Claim { meta, ..Claim::default() };
            assert_eq!(check_owner(&web, &claim).is_ok(), is_own, "{owners:?}");
        }
    }

    #[tokio::test]
    async fn inline_volume_is_resolved_from_its_pod() {
        let pod = Arc::new(pod(vec![secret(), secret(), secret()]));
        let look = DuePod { uid: pod.uid(), pod, number: 3 };
        let resolved = resolve(look, Arc::new(MemoryApi::default())).await;
        assert_eq!(resolved.number, 3);
        let names: Vec<_> = resolved.volumes.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["v0", "v1"], "no container uses the last");
        for (name, found) in &resolved.volumes {
            let found = found.as_ref().expect("an inline volume is always found");
            assert_eq!(found.spec.name().as_str(), name.as_str());
            assert!(found.gid.is_none() && found.claim_capacity.is_none() && !found.spec.read_only);
        }
    }
}
