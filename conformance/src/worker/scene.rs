//! The scene of a case: driver, proxy, cluster and node, put together inside the sandbox.

use harness::journal::Journal;
use harness::manifest::Sensitive;
use harness::sandbox::Sandbox;

use super::message::{Abilities, Orders, Refusal};
use crate::cx::{Code, Doing, Method};
use crate::failure::What;

/// A volume as a case wants it.
#[derive(Debug, Clone)]
pub(crate) struct VolumeSpec {
    pub(crate) name: String,
    pub(crate) block: bool,
    pub(crate) shared: bool,
}

impl VolumeSpec {
    pub(crate) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), block: false, shared: false }
    }
}

/// A pod as a case wants it.
#[derive(Debug, Clone)]
pub(crate) struct PodSpec {
    pub(crate) name: String,
    pub(crate) mounts: Vec<MountSpec>,
}

/// A volume in a pod.
#[derive(Debug, Clone)]
pub(crate) struct MountSpec {
    pub(crate) volume: String,
    pub(crate) path: String,
    pub(crate) device: bool,
    pub(crate) read_only: bool,
}

/// Why a step of a case failed.
#[derive(Debug)]
pub(crate) enum SceneError {
    /// The world is not as the case says.
    Broken(Vec<String>),
    /// The suite could not do its part.
    Ours(Vec<String>),
}

impl SceneError {
    pub(crate) fn what(self) -> What {
        match self {
            Self::Broken(chain) => What::Broken(chain),
            Self::Ours(chain) => What::Ours(chain),
        }
    }
}

type Result<T = ()> = std::result::Result<T, SceneError>;

#[derive(Debug)]
pub(crate) struct Scene {
    journal: Journal,
}

impl Scene {
    pub(super) async fn set(
        _orders: &Orders,
        _sandbox: &Sandbox,
        _abilities: &Abilities,
    ) -> std::result::Result<Self, Refusal> {
        Err(Refusal::ours(&anyhow::anyhow!("no driver can be started yet")))
    }
    pub(crate) async fn create_volume(&self, spec: &VolumeSpec) -> Result {
        Ok(())
    }
    pub(crate) async fn add_pod(&self, spec: &PodSpec) -> Result {
        Ok(())
    }
    pub(crate) async fn wait_mounted(&self, pod: &str) -> Result {
        Ok(())
    }
    pub(crate) async fn wait_unmounted(&self, pod: &str) -> Result {
        Ok(())
    }
    pub(crate) async fn remove_pod(&self, pod: &str) -> Result {
        Ok(())
    }
    pub(crate) async fn write_file(&self, pod: &PodSpec, path: &str, text: &str) -> Result {
        Ok(())
    }
    pub(crate) async fn read_file(&self, pod: &PodSpec, path: &str, text: &str) -> Result {
        Ok(())
    }
    pub(crate) async fn write_is_refused(&self, pod: &PodSpec, path: &str) -> Result {
        Ok(())
    }
    pub(crate) fn fail(&self, method: Method, code: Code, times: u32) {}
    pub(crate) fn hold(&self, method: Method) {}
    pub(crate) async fn held(&self, method: Method) -> Result {
        Ok(())
    }
    pub(crate) fn release(&self, method: Method) {}
    pub(crate) async fn kill_node(&self) -> Result {
        Ok(())
    }
    pub(crate) async fn start_node(&self) -> Result {
        Ok(())
    }
    pub(crate) async fn kill_driver(&self) -> Result {
        Ok(())
    }
    pub(crate) async fn start_driver(&self) -> Result {
        Ok(())
    }
    pub(crate) fn step(&self, doing: &Doing) {}
    pub(crate) async fn settle(&self) -> Vec<String> {
        vec![]
    }
    pub(crate) fn look(&self) -> String {
        String::new()
    }
    pub(super) fn driver_exit(&self) -> Option<String> {
        None
    }
    pub(super) async fn wind_up(&self) -> bool {
        true
    }
    pub(super) async fn end(&self) {}
    pub(super) async fn books(&self) -> std::result::Result<Option<Vec<String>>, Vec<String>> {
        Ok(None)
    }
    pub(super) fn secrets(&self) -> &[Sensitive<String>] {
        &[]
    }
    pub(super) fn journal(&self) -> &Journal {
        &self.journal
    }
    pub(crate) fn under_way(&self) -> Vec<String> {
        vec![]
    }
}
