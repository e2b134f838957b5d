//! Pods: what a case wants volumes for.

use std::panic::Location;
use std::rc::Rc;

use super::{Doing, Shared, Volume};
use crate::failure::Result;
use crate::worker::scene::{MountSpec, PodSpec};

/// A pod that is about to be started.
#[derive(Debug)]
#[must_use = "no pod exists before `start` or `add`"]
pub struct PodBuilder {
    shared: Rc<Shared>,
    spec: PodSpec,
}

/// A pod on the node.
#[derive(Debug, Clone)]
pub struct Pod {
    shared: Rc<Shared>,
    spec: PodSpec,
}

impl PodBuilder {
    pub(super) fn new(shared: Rc<Shared>, name: &str) -> Self {
        Self { shared, spec: PodSpec { name: name.to_owned(), mounts: vec![] } }
    }

    /// With a volume's file system at a path in its container.
    pub fn volume(self, volume: &Volume, path: &str) -> Self {
        self.mount(volume, path, false)
    }

    /// With a volume's device at a path in its container.
    pub fn device(self, volume: &Volume, path: &str) -> Self {
        self.mount(volume, path, true)
    }

    /// The volume named last is for reading only: its claim says so, and the driver is told.
    pub fn read_only(mut self) -> Self {
        if let Some(last) = self.spec.mounts.last_mut() {
            last.read_only = true;
        }
        self
    }

    fn mount(mut self, volume: &Volume, path: &str, device: bool) -> Self {
        let (volume, path) = (volume.name.clone(), path.to_owned());
        self.spec.mounts.push(MountSpec { volume, path, device, read_only: false });
        self
    }

    /// Gives the pod to the node and waits until its containers may run.
    #[track_caller]
    pub fn start(self) -> impl Future<Output = Result<Pod>> {
        let doing = self.shared.begin(&format!("cx.pod(\"{}\").start()", self.spec.name), Location::caller());
        async move {
            let pod = self.hand_over(&doing).await?;
            doing.done(pod.shared.scene.wait_mounted(&pod.spec.name).await)?;
            Ok(pod)
        }
    }

    /// Gives the pod to the node and does not wait for its volumes.
    #[track_caller]
    pub fn add(self) -> impl Future<Output = Result<Pod>> {
        let doing = self.shared.begin(&format!("cx.pod(\"{}\").add()", self.spec.name), Location::caller());
        async move { self.hand_over(&doing).await }
    }

    async fn hand_over(self, doing: &Doing) -> Result<Pod> {
        doing.done(self.shared.scene.add_pod(&self.spec).await)?;
        Ok(Pod { shared: self.shared, spec: self.spec })
    }
}

impl Pod {
    /// Waits until its containers may run.
    #[track_caller]
    pub fn runs(&self) -> impl Future<Output = Result> {
        let doing = self.begin("runs()", Location::caller());
        async move { doing.done(self.shared.scene.wait_mounted(&self.spec.name).await) }
    }

    /// Waits until the node has taken note of it, and of every other pod that came or went until now. Whether
    /// it can already do something about it is another matter.
    #[track_caller]
    pub fn is_noticed(&self) -> impl Future<Output = Result> {
        let doing = self.begin("is_noticed()", Location::caller());
        async move { doing.done(self.shared.scene.wait_noticed().await) }
    }

    /// Deletes it, its containers having ended, and waits until nothing of it is left on the node.
    #[track_caller]
    pub fn stop(&self) -> impl Future<Output = Result> {
        let doing = self.begin("stop()", Location::caller());
        async move {
            doing.done(self.shared.scene.remove_pod(&self.spec.name).await)?;
            doing.done(self.shared.scene.wait_gone(&self.spec.name).await)
        }
    }

    /// Deletes it, its containers having ended, and does not wait.
    #[track_caller]
    pub fn remove(&self) -> impl Future<Output = Result> {
        let doing = self.begin("remove()", Location::caller());
        async move { doing.done(self.shared.scene.remove_pod(&self.spec.name).await) }
    }

    /// Writes a file below a volume's path, as its container would, and reads it back.
    #[track_caller]
    pub fn writes(&self, path: &str, text: &str) -> impl Future<Output = Result> {
        let doing = self.begin(&format!("writes(\"{path}\")"), Location::caller());
        async move { doing.done(self.shared.scene.write_file(&self.spec, path, text).await) }
    }

    /// Reads a file below a volume's path, and compares it.
    #[track_caller]
    pub fn reads(&self, path: &str, text: &str) -> impl Future<Output = Result> {
        let doing = self.begin(&format!("reads(\"{path}\")"), Location::caller());
        async move { doing.done(self.shared.scene.read_file(&self.spec, path, text).await) }
    }

    /// Tries to write a file below a volume's path, and finds the file system read-only.
    #[track_caller]
    pub fn cannot_write(&self, path: &str) -> impl Future<Output = Result> {
        let doing = self.begin(&format!("cannot_write(\"{path}\")"), Location::caller());
        async move { doing.done(self.shared.scene.write_is_refused(&self.spec, path).await) }
    }

    fn begin(&self, step: &str, location: &Location<'_>) -> Doing {
        self.shared.begin(&format!("{}.{step}", self.spec.name), location)
    }
}
