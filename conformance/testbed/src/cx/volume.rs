//! Volumes that a case has the driver create.

use std::panic::Location;
use std::rc::Rc;

use harness::api_server::{ContentSource, ProvisionError};
use harness::proxy::code_name;

use super::{Doing, Shared, Snapshot};
use crate::bed::VolumeSpec;
use crate::failure::Result;

/// A volume that is about to be made.
#[derive(Debug)]
#[must_use = "nothing is made before `create`"]
pub struct VolumeBuilder {
    shared: Rc<Shared>,
    spec: VolumeSpec,
}

/// A volume the driver has made, with a claim that is bound to it.
#[derive(Debug, Clone)]
pub struct Volume {
    pub(super) name: String,
}

impl VolumeBuilder {
    pub(super) fn new(shared: Rc<Shared>, name: &str) -> Self {
        Self { shared, spec: VolumeSpec::new(name) }
    }

    /// As a block volume.
    pub fn block(mut self) -> Self {
        self.spec.block = true;
        self.spec.mount_options.clear();
        self
    }

    pub(super) fn on_other_node(mut self) -> Self {
        self.spec.on_other_node = true;
        self
    }

    /// For pods on several nodes at once.
    pub fn on_all_nodes(mut self) -> Self {
        self.spec.on_all_nodes = true;
        self
    }

    /// For more than one pod at once.
    pub fn shared(mut self) -> Self {
        self.spec.shared = true;
        self
    }

    /// For one pod only.
    pub fn single_pod(mut self) -> Self {
        self.spec.single_pod = true;
        self
    }

    /// With a file system of this type; empty leaves that to the driver.
    pub fn fs_type(mut self, fs_type: &str) -> Self {
        self.spec.fs_type = Some(fs_type.to_owned());
        self
    }

    /// Mounted with this option.
    pub fn mount_option(mut self, option: &str) -> Self {
        self.spec.mount_options.push(option.to_owned());
        self
    }

    /// With a group in the annotation of its persistent volume.
    pub fn gid(mut self, gid: u32) -> Self {
        self.spec.gid = Some(gid);
        self
    }

    /// Served through FUSE by a daemon of the driver's own, if the driver has such volumes. A volume that is published shows
    /// whether it is one.
    pub fn fuse(mut self) -> Self {
        self.spec.fuse = true;
        self
    }

    pub fn size(mut self, bytes: u64) -> Self {
        self.spec.size = Some(bytes);
        self
    }

    /// As a copy of another volume.
    pub fn copy_of(mut self, source: &Volume) -> Self {
        self.spec.source = Some(ContentSource::Volume(self.shared.bed.handle(&source.name)));
        self.spec.size = Some(self.shared.bed.size(&source.name));
        self
    }

    /// As a copy of the driver's volume of this id.
    pub fn copy_of_id(mut self, id: &str) -> Self {
        self.spec.source = Some(ContentSource::Volume(id.to_owned()));
        self
    }

    /// From a snapshot, as large as the volume that it was taken of.
    pub fn restored_from(mut self, snapshot: &Snapshot) -> Self {
        self.spec.source = Some(ContentSource::Snapshot(snapshot.id.clone()));
        self.size(snapshot.size)
    }

    /// Has the driver make it, if it makes such; otherwise the code that it answers.
    #[track_caller]
    pub fn create_if_supported(self) -> impl Future<Output = Result<std::result::Result<Volume, String>>> {
        let step = format!("cx.volume(\"{}\").create_if_supported()", self.spec.name);
        let doing = self.shared.begin(&step, Location::caller());
        async move {
            let made = doing.done(self.shared.bed.try_create_volume(&self.spec).await)?;
            let code = |refused| match refused {
                ProvisionError::Create { source, .. } => code_name(source.code()).to_owned(),
                other => other.to_string(),
            };
            Ok(made.map(|()| Volume { name: self.spec.name }).map_err(code))
        }
    }

    /// Has the driver make it, and binds a claim of the same name to it.
    #[track_caller]
    pub fn create(self) -> impl Future<Output = Result<Volume>> {
        let doing =
            self.shared.begin(&format!("cx.volume(\"{}\").create()", self.spec.name), Location::caller());
        self.finish(doing)
    }

    async fn finish(self, doing: Doing) -> Result<Volume> {
        doing.done(self.shared.bed.create_volume(&self.spec).await)?;
        Ok(Volume { name: self.spec.name })
    }
}
