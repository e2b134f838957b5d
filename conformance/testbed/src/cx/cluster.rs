//! Claims and snapshots as a user writes them: the cluster's controllers call the driver for them.

use std::panic::Location;
use std::rc::Rc;

use api::{AccessMode, Bytes, Kind, VolumeSource};

use super::{Cx, Doing, Shared, Volume};
use crate::bed::ClaimSpec;
use crate::failure::Result;

/// The controllers that bind, provision, copy, modify and reclaim volumes.
#[derive(Debug)]
pub struct Cluster {
    shared: Rc<Shared>,
}

/// A claim that is about to be written.
#[derive(Debug)]
#[must_use = "no claim exists before `bound`"]
pub struct ClaimBuilder {
    shared: Rc<Shared>,
    spec: ClaimSpec,
}

/// A snapshot that the controllers have had taken.
#[derive(Debug, Clone)]
pub struct ClusterSnapshot {
    name: String,
    /// The size of a volume that is made from it.
    size: u64,
}

/// A group snapshot that the controllers have had taken.
#[derive(Debug, Clone)]
pub struct ClusterGroup {
    name: String,
    /// The snapshot of each claim, in the order in which they were named.
    pub members: Vec<ClusterSnapshot>,
}

impl Cx {
    /// Starts the controllers that a cluster has beside a driver.
    #[track_caller]
    pub fn cluster(&self) -> impl Future<Output = Result<Cluster>> {
        let doing = self.shared.begin("cx.cluster()", Location::caller());
        async move {
            doing.done(self.shared.bed.start_cluster())?;
            Ok(Cluster { shared: self.shared() })
        }
    }
}

impl Cluster {
    /// A claim, for which the driver is to make a volume.
    pub fn claim(&self, name: &str) -> ClaimBuilder {
        let spec = ClaimSpec { name: name.to_owned(), ..ClaimSpec::default() };
        ClaimBuilder { shared: Rc::clone(&self.shared), spec }
    }

    /// The source of a pod's volume whose claim is made for the pod, with a volume of the driver.
    pub fn own_claim(&self, pod: &str, volume: &str) -> VolumeSource {
        VolumeSource::Ephemeral { template: Box::new(self.shared.bed.own_claim(pod, volume)) }
    }

    /// Waits until the claim that was made for a pod is gone, and the driver has deleted its volume.
    #[track_caller]
    pub fn own_claim_is_gone(&self, pod: &str, volume: &str) -> impl Future<Output = Result> {
        let doing = self.begin(&format!("own_claim_is_gone(\"{pod}\", \"{volume}\")"), Location::caller());
        async move { doing.done(self.shared.bed.own_claim_is_gone(pod, volume).await) }
    }

    /// Takes a snapshot of a claim, and waits until it can be restored.
    #[track_caller]
    pub fn snapshot(&self, name: &str, volume: &Volume) -> impl Future<Output = Result<ClusterSnapshot>> {
        let doing = self.begin(&format!("snapshot(\"{name}\", &{})", volume.name), Location::caller());
        async move {
            let size = doing.done(self.shared.bed.ready_snapshot(name, &volume.name).await)?;
            let size = size.0.max(self.shared.bed.size(&volume.name));
            Ok(ClusterSnapshot { name: name.to_owned(), size })
        }
    }

    /// Deletes a snapshot, and waits until the driver has deleted it.
    #[track_caller]
    pub fn delete_snapshot(&self, snapshot: &ClusterSnapshot) -> impl Future<Output = Result> {
        let doing = self.begin(&format!("delete_snapshot(\"{}\")", snapshot.name), Location::caller());
        async move { doing.done(self.shared.bed.deleted(Kind::Snapshot, &snapshot.name).await) }
    }

    /// Takes snapshots of claims at one moment, and waits until they can be restored.
    #[track_caller]
    pub fn group_snapshot(
        &self,
        name: &str,
        volumes: &[&Volume],
    ) -> impl Future<Output = Result<ClusterGroup>> {
        let claims: Vec<&str> = volumes.iter().map(|volume| volume.name.as_str()).collect();
        let step = format!("group_snapshot(\"{name}\", [{}])", claims.join(", "));
        let doing = self.begin(&step, Location::caller());
        async move {
            let members = doing.done(self.shared.bed.ready_group(name, &claims).await)?;
            let member = |((name, size), claim): ((String, Bytes), &str)| ClusterSnapshot {
                name,
                size: size.0.max(self.shared.bed.size(claim)),
            };
            let members = members.into_iter().zip(claims).map(member).collect();
            Ok(ClusterGroup { name: name.to_owned(), members })
        }
    }

    /// Deletes a group snapshot, and waits until the driver has deleted it with its snapshots.
    #[track_caller]
    pub fn delete_group(&self, group: &ClusterGroup) -> impl Future<Output = Result> {
        let doing = self.begin(&format!("delete_group(\"{}\")", group.name), Location::caller());
        async move { doing.done(self.shared.bed.deleted(Kind::GroupSnapshot, &group.name).await) }
    }

    /// Deletes a claim, and waits until the driver has deleted its volume.
    #[track_caller]
    pub fn delete_claim(&self, volume: &Volume) -> impl Future<Output = Result> {
        let doing = self.begin(&format!("delete_claim(\"{}\")", volume.name), Location::caller());
        async move { doing.done(self.shared.bed.deleted(Kind::Claim, &volume.name).await) }
    }

    /// Has a claim ask for more room, and waits until the controller has done its part.
    #[track_caller]
    pub fn grow(&self, volume: &Volume, size: u64) -> impl Future<Output = Result> {
        let doing = self.begin(&format!("grow(\"{}\", {size})", volume.name), Location::caller());
        async move { doing.done(self.shared.bed.claim_grows(&volume.name, size).await) }
    }

    /// Has a claim ask for more room than there is. Says whether the driver has refused it.
    #[track_caller]
    pub fn grow_is_refused(&self, volume: &Volume, size: u64) -> impl Future<Output = Result<bool>> {
        let doing = self.begin(&format!("grow_is_refused(\"{}\", {size})", volume.name), Location::caller());
        async move { doing.done(self.shared.bed.claim_is_refused(&volume.name, size).await) }
    }

    /// Deletes the claim of a retained volume, and waits until the volume is released.
    #[track_caller]
    pub fn release(&self, volume: &Volume) -> impl Future<Output = Result> {
        let doing = self.begin(&format!("release(\"{}\")", volume.name), Location::caller());
        async move { doing.done(self.shared.bed.released(&volume.name).await) }
    }

    /// Claims a released volume again, and waits until the claim is bound to it.
    #[track_caller]
    pub fn claim_again(&self, volume: &Volume) -> impl Future<Output = Result> {
        let doing = self.begin(&format!("claim_again(\"{}\")", volume.name), Location::caller());
        async move { doing.done(self.shared.bed.claimed_again(&volume.name).await) }
    }

    /// Has a retained volume be deleted with its claim from now on.
    #[track_caller]
    pub fn retain_no_more(&self, volume: &Volume) -> Result {
        let doing = self.begin(&format!("retain_no_more(\"{}\")", volume.name), Location::caller());
        doing.done(self.shared.bed.is_retained_no_more(&volume.name))
    }

    /// Writes a class with the manifest's `mutable_parameters`.
    #[track_caller]
    pub fn attributes_class(&self, name: &str) -> impl Future<Output = Result> {
        let doing = self.begin(&format!("attributes_class(\"{name}\")"), Location::caller());
        async move { doing.done(self.shared.bed.write_attributes_class(name)) }
    }

    /// Has a claim name another class of attributes, and waits until its volume has them.
    #[track_caller]
    pub fn modify(&self, volume: &Volume, class: &str) -> impl Future<Output = Result> {
        let doing = self.begin(&format!("modify(\"{}\", \"{class}\")", volume.name), Location::caller());
        async move { doing.done(self.shared.bed.modified(&volume.name, class).await) }
    }

    fn begin(&self, step: &str, at: &'static Location<'static>) -> Doing {
        self.shared.begin(&format!("cluster.{step}"), at)
    }
}

impl ClaimBuilder {
    /// For a raw block device instead of a file system.
    pub fn block(mut self) -> Self {
        self.spec.block = true;
        self
    }

    pub fn size(mut self, bytes: u64) -> Self {
        self.spec.size = Some(bytes);
        self
    }

    /// For a copy of another claim's volume.
    pub fn copy_of(mut self, source: &Volume) -> Self {
        self.spec.source = Some(("PersistentVolumeClaim", source.name.clone()));
        let size = self.shared.bed.size(&source.name);
        self.size(size)
    }

    /// For a volume that is made from a snapshot, as large as its source.
    pub fn restored_from(mut self, snapshot: &ClusterSnapshot) -> Self {
        self.spec.source = Some(("VolumeSnapshot", snapshot.name.clone()));
        self.size(snapshot.size)
    }

    pub fn attributes(mut self, class: &str) -> Self {
        class.clone_into(&mut self.spec.attributes_class);
        self
    }

    /// For a volume that outlives the claim.
    pub fn retained(mut self) -> Self {
        self.spec.retained = true;
        self
    }

    /// For pods on several nodes at once.
    pub fn on_all_nodes(mut self) -> Self {
        self.spec.mode = Some(AccessMode::ReadWriteMany);
        self
    }

    /// Writes it, and waits until it is bound to a volume.
    #[track_caller]
    pub fn bound(self) -> impl Future<Output = Result<Volume>> {
        let step = format!("cluster.claim(\"{}\").bound()", self.spec.name);
        let doing = self.shared.begin(&step, Location::caller());
        async move {
            doing.done(self.shared.bed.bound_claim(&self.spec).await)?;
            Ok(Volume { name: self.spec.name })
        }
    }
}
