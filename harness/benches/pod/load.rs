//! The pods of a round, and their volumes.

use api::pod::{VolumeDevice, VolumeMount};
use api::{Container, Meta, Pod, PodVolume, VolumeSource};

/// So many pods, each with so many volumes of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) pods: usize,
    pub(crate) volumes: usize,
    pub(crate) block: bool,
}

impl Load {
    /// The claims of all volumes.
    pub(crate) fn claims(self) -> impl Iterator<Item = String> {
        (0..self.pods * self.volumes).map(claim)
    }

    /// The pods of a round: a pod that is gone does not come back, so each is another one.
    pub(crate) fn pods(self, round: usize) -> Vec<Pod> {
        (0..self.pods).map(|pod| self.pod(&format!("web-{round}-{pod}"), pod * self.volumes)).collect()
    }

    fn pod(self, name: &str, first: usize) -> Pod {
        let claims: Vec<String> = (first..first + self.volumes).map(claim).collect();
        let mut container = Container { name: "c".to_owned(), ..Container::default() };
        for volume in &claims {
            let (volume, path) = (volume.clone(), format!("/{volume}"));
            match self.block {
                true => container.devices.push(VolumeDevice { volume, path }),
                false => container.mounts.push(VolumeMount { volume, path, ..VolumeMount::default() }),
            }
        }
        let volume = |claim: &String| PodVolume {
            name: claim.as_str().into(),
            source: VolumeSource::Claim { claim: claim.clone(), read_only: false },
        };
        Pod {
            meta: Meta { uid: format!("uid-{name}"), ..Meta::named("default", name) },
            node: "node-1".to_owned(),
            volumes: claims.iter().map(volume).collect(),
            containers: vec![container],
            ..Pod::default()
        }
    }
}

fn claim(number: usize) -> String {
    format!("data-{number}")
}
