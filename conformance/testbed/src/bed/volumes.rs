//! Volumes that a case creates through the provisioner.

use api::AccessMode;
use harness::api_server::{ProvisionError, VolumeRequest};
use harness::proxy::{code_name, is_unanswered, unreadable};
use tonic::Status;

use super::{Bed, Result, StepError, VolumeSpec};
use crate::failure::{chain, words};

/// The promise that a copy has the data of its source.
const COPIES: &str = "DRV-014";

impl Bed {
    /// Has the driver make a volume, and binds a claim to it.
    pub(crate) async fn create_volume(&self, spec: &VolumeSpec) -> Result {
        match self.try_create_volume(spec).await? {
            Ok(()) => Ok(()),
            Err(ProvisionError::Create { source, .. }) if spec.source.is_some() && is_refusal(&source) => {
                let cause = format!(
                    "CreateVolume of a copy answered {} \"{}\".",
                    code_name(source.code()),
                    words(&source)
                );
                Err(StepError::Promise { contract: COPIES, method: "CreateVolume".to_owned(), cause })
            }
            Err(refused) => Err(StepError::Broken(chain(&refused))),
        }
    }

    /// The size of a volume for which a case asks for none.
    pub(crate) fn ordinary_size(&self) -> u64 {
        self.size_for(self.fs_types().first().map_or("", String::as_str), false)
    }

    /// The same for a type of file system, or for a device.
    pub(super) fn size_for(&self, fs_type: &str, block: bool) -> u64 {
        let size = self.manifest().volume_size();
        if block { size } else { size.max(least_size(fs_type)) }
    }

    /// Has the driver make a volume. The inner error is the driver's answer if it refuses.
    pub(crate) async fn try_create_volume(
        &self,
        spec: &VolumeSpec,
    ) -> Result<std::result::Result<(), ProvisionError>> {
        let mut request = VolumeRequest::new(&spec.name, self.manifest());
        request.block = spec.block;
        if let Some(fs_type) = &spec.fs_type {
            request.fs_type.clone_from(fs_type);
        }
        request.mount_options.clone_from(&spec.mount_options);
        request.size = spec.size.unwrap_or_else(|| self.size_for(&request.fs_type, spec.block));
        request.source.clone_from(&spec.source);
        request.fuse = spec.fuse;
        if spec.fuse && !self.manifest().volume.fuse_parameters.is_empty() {
            // The manifest's are those of the volumes that are disks.
            request.fs_type.clear();
        }
        if spec.single_pod {
            request.access_modes = vec![AccessMode::ReadWriteOncePod];
        }
        // An ordinary volume will do if the driver has modes for several writers on one node.
        if spec.on_all_nodes || spec.shared && !self.abilities.shares_on_a_node() {
            request.access_modes = vec![AccessMode::ReadWriteMany];
        }
        let earlier = self.driver_loops();
        let provisioner = match spec.on_other_node {
            true => &self.the_other()?.provisioner,
            false => &self.provisioner,
        };
        let made = provisioner.provision(&request).await;
        self.remember_loops(&earlier);
        let made = match made {
            Ok(made) => made,
            Err(refused @ ProvisionError::Create { .. }) => return Ok(Err(refused)),
            Err(error) => return Err(StepError::Broken(chain(&error))),
        };
        if let Some(gid) = spec.gid {
            self.give_group(&made.volume, gid)?;
        }
        self.made.volumes.borrow_mut().insert(spec.name.clone(), made);
        if spec.on_other_node {
            self.made.of_other.borrow_mut().insert(spec.name.clone());
        }
        if spec.source.is_some() {
            self.made.copies.borrow_mut().volumes.insert(spec.name.clone());
        }
        Ok(Ok(()))
    }
}

/// Whether an error is the driver's refusal of the request, and not a lack of space or of an answer.
fn is_refusal(status: &Status) -> bool {
    let is_transient = matches!(status.code(), tonic::Code::Unavailable | tonic::Code::ResourceExhausted);
    !is_transient && unreadable(status).is_none() && !is_unanswered(status)
}

/// The smallest size for which mkfs works: a manifest has one size for several types of file systems.
fn least_size(fs_type: &str) -> u64 {
    match fs_type {
        "xfs" => 300 << 20,
        "btrfs" => 128 << 20,
        _ => 0,
    }
}
