//! Pods of a case.

use std::panic::Location;
use std::rc::Rc;
use std::time::Duration;

use api::VolumeSource;
use api::environment::{Origin, Variable};
use expect_test::Expect;

use super::{Container, Doing, Shared, Volume};
use crate::bed::{MountSpec, PodSpec};
use crate::failure::Result;

/// A pod that is about to be started.
#[derive(Debug, Clone)]
#[must_use = "no pod exists before `start` or `add`"]
pub struct PodBuilder {
    shared: Rc<Shared>,
    spec: PodSpec,
}

/// A pod on the node.
#[derive(Debug, Clone)]
pub struct Pod {
    pub(super) shared: Rc<Shared>,
    pub(super) spec: PodSpec,
}

impl PodBuilder {
    pub(super) fn new(shared: Rc<Shared>, name: &str) -> Self {
        Self { shared, spec: PodSpec { name: name.to_owned(), ..PodSpec::default() } }
    }

    /// A pod like this one.
    pub(super) fn of(pod: &Pod) -> Self {
        Self { shared: Rc::clone(&pod.shared), spec: pod.spec.clone() }
    }

    pub(super) fn on_other_node(mut self) -> Self {
        self.spec.on_other_node = true;
        self
    }

    /// With a volume's file system at a path in its container.
    pub fn volume(self, volume: &Volume, path: &str) -> Self {
        self.mount(MountSpec::new(&volume.name, None, path))
    }

    /// With a volume's device at a path in its container.
    pub fn device(self, volume: &Volume, path: &str) -> Self {
        self.mount(MountSpec { device: true, ..MountSpec::new(&volume.name, None, path) })
    }

    /// With a volume that no driver makes, at a path in its container. Named again it is mounted once more.
    pub fn inline(self, name: &str, source: VolumeSource, path: &str) -> Self {
        self.mount(MountSpec::new(name, Some(source), path))
    }

    /// Makes the last volume read-only, in the claim's source and in the driver's request.
    pub fn read_only(mut self) -> Self {
        if let Some(last) = self.spec.mounts.last_mut() {
            (last.read_only, last.mount.read_only) = (true, true);
        }
        self
    }

    /// Mounts only this sub-path of the last volume.
    pub fn sub_path(self, path: &str) -> Self {
        self.last(|last| path.clone_into(&mut last.mount.sub_path))
    }

    /// Mounts only a sub-path of the last volume, with variables of the environment in its name.
    pub fn sub_path_expr(self, path: &str) -> Self {
        self.last(|last| path.clone_into(&mut last.mount.sub_path_expr))
    }

    /// How mounts travel between the node and the volume named last: `HostToContainer` or `Bidirectional`.
    pub fn propagation(self, mode: &str) -> Self {
        self.last(|last| mode.clone_into(&mut last.mount.propagation))
    }

    /// The volume named last is read-only in the container, and all that is mounted below it.
    pub fn recursively_read_only(self) -> Self {
        self.last(|last| {
            last.mount.read_only = true;
            "Enabled".clone_into(&mut last.mount.recursive_read_only);
        })
    }

    /// The group its volumes are given to.
    pub fn fs_group(mut self, group: u32) -> Self {
        self.spec.security.fs_group = Some(group);
        self
    }

    /// Further groups of its containers.
    pub fn groups(mut self, groups: &[u32]) -> Self {
        self.spec.security.supplemental_groups = groups.to_vec();
        self
    }

    /// Volumes whose root has the group already are left alone.
    pub fn on_root_mismatch(mut self) -> Self {
        self.spec.security.fs_group_on_root_mismatch = true;
        self
    }

    /// The user its container runs as.
    pub fn run_as(mut self, user: u32) -> Self {
        self.spec.security.run_as_user = Some(user);
        self
    }

    /// The group its container runs as.
    pub fn run_as_group(mut self, group: u32) -> Self {
        self.spec.security.confinement.run_as_group = Some(group);
        self
    }

    /// Sets runAsNonRoot of the container.
    pub fn run_as_non_root(mut self) -> Self {
        self.spec.security.confinement.run_as_non_root = Some(true);
        self
    }

    /// Sets readOnlyRootFilesystem of the container.
    pub fn read_only_root(mut self) -> Self {
        self.spec.read_only_root = true;
        self
    }

    /// Makes the container privileged.
    pub fn privileged(mut self) -> Self {
        self.spec.privileged = true;
        self
    }

    /// With the priority of a pod that the cluster cannot do without.
    pub fn critical(mut self) -> Self {
        self.spec.critical = true;
        self
    }

    /// A variable of its container's environment.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.spec.environment.push(Variable::text(name, value));
        self
    }

    /// A variable whose value comes from somewhere else.
    pub fn env_from(mut self, name: &str, origin: Origin) -> Self {
        self.spec.environment.push(Variable { name: name.to_owned(), origin });
        self
    }

    /// Switches service links off.
    pub fn without_services(mut self) -> Self {
        self.spec.without_services = true;
        self
    }

    /// A limit or a request of its container, such as `limits.memory`.
    pub fn resource(mut self, name: &str, amount: &str) -> Self {
        self.spec.resources.insert(name.to_owned(), amount.to_owned());
        self
    }

    pub fn label(mut self, name: &str, value: &str) -> Self {
        self.spec.labels.insert(name.to_owned(), value.to_owned());
        self
    }

    /// An address, for which it gets a hosts file.
    pub fn address(mut self, ip: &str) -> Self {
        self.spec.ips.push(ip.to_owned());
        self
    }

    /// With a hostname that differs from the pod's name.
    pub fn called(mut self, hostname: &str) -> Self {
        self.spec.hostname = Some(hostname.to_owned());
        self
    }

    /// Sets the path of the container's termination message.
    pub fn last_words(mut self, path: &str) -> Self {
        path.clone_into(&mut self.spec.last_words);
        self
    }

    fn mount(mut self, mount: MountSpec) -> Self {
        self.spec.mounts.push(mount);
        self
    }

    fn last(mut self, change: impl FnOnce(&mut MountSpec)) -> Self {
        if let Some(last) = self.spec.mounts.last_mut() {
            change(last);
        }
        self
    }

    /// Gives the pod to the node and waits until its containers may run.
    #[track_caller]
    pub fn start(self) -> impl Future<Output = Result<Pod>> {
        let doing = self.shared.begin(&format!("cx.pod(\"{}\").start()", self.spec.name), Location::caller());
        async move {
            let pod = self.hand_over(&doing).await?;
            doing.done(pod.shared.bed.wait_mounted(&pod.spec.name).await)?;
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
        doing.done(self.shared.bed.add_pod(&self.spec).await)?;
        Ok(Pod { shared: self.shared, spec: self.spec })
    }
}

impl Pod {
    /// Starts its container, anew if it runs already, with the volumes as the node has them now.
    #[track_caller]
    pub fn container(&self) -> impl Future<Output = Result<Container>> {
        let doing = self.begin("container()", Location::caller());
        async move {
            let running = doing.done(self.shared.bed.start_container(&self.spec.name).await)?;
            Ok(Container::new(Rc::clone(&self.shared), running, self.spec.clone()))
        }
    }

    /// Tries to start the container, and compares the error for the user.
    #[track_caller]
    pub fn container_is_refused(&self, expected: Expect) -> impl Future<Output = Result> {
        let doing = self.begin("container_is_refused()", Location::caller());
        async move {
            let refused = doing.done(self.shared.bed.refused_container(&self.spec.name).await)?;
            self.shared.compare(&expected, refused, &doing.at)
        }
    }

    /// Waits until the pod has a warning event, and compares it.
    #[track_caller]
    pub fn has_event(&self, expected: Expect) -> impl Future<Output = Result> {
        let doing = self.begin("has_event()", Location::caller());
        async move {
            let complaint = doing.done(self.shared.bed.complaint(&self.spec.name, "").await)?;
            self.shared.compare(&expected, complaint, &doing.at)
        }
    }

    /// Waits until the pod has a warning event that names the driver.
    #[track_caller]
    pub fn misses_its_driver(&self) -> impl Future<Output = Result> {
        let doing = self.begin("misses_its_driver()", Location::caller());
        async move {
            let bed = &self.shared.bed;
            doing.done(bed.complaint(&self.spec.name, bed.driver_name()).await.map(drop))
        }
    }

    /// Has it synced, as happens once a minute: what its volumes are made of is looked at again.
    #[track_caller]
    pub fn sync(&self) -> impl Future<Output = Result> {
        let doing = self.begin("sync()", Location::caller());
        async move { doing.done(self.shared.bed.sync(&self.spec.name).await) }
    }

    /// Waits until its containers may run.
    #[track_caller]
    pub fn runs(&self) -> impl Future<Output = Result> {
        let doing = self.begin("runs()", Location::caller());
        async move { doing.done(self.shared.bed.wait_mounted(&self.spec.name).await) }
    }

    /// Waits until the node knows this pod and all other changes of pods so far. It need not have acted on them.
    #[track_caller]
    pub fn is_noticed(&self) -> impl Future<Output = Result> {
        let doing = self.begin("is_noticed()", Location::caller());
        async move { doing.done(self.shared.bed.wait_noticed().await) }
    }

    /// Deletes the pod after its containers have ended, and waits until nothing of it is left on the node.
    #[track_caller]
    pub fn stop(&self) -> impl Future<Output = Result> {
        let doing = self.begin("stop()", Location::caller());
        async move {
            doing.done(self.shared.bed.remove_pod(&self.spec.name).await)?;
            doing.done(self.shared.bed.wait_gone(&self.spec.name).await)
        }
    }

    /// Waits until nothing of the pod is left on the node, and advances the node's clock whenever the node is waiting.
    #[track_caller]
    pub fn is_gone_within(&self, time: Duration) -> impl Future<Output = Result> {
        let doing = self.begin(&format!("is_gone_within({} s)", time.as_secs()), Location::caller());
        async move { doing.done(self.shared.bed.wait_gone_within(&self.spec.name, time).await) }
    }

    /// Deletes it, its containers having ended, and does not wait.
    #[track_caller]
    pub fn remove(&self) -> impl Future<Output = Result> {
        let doing = self.begin("remove()", Location::caller());
        async move { doing.done(self.shared.bed.remove_pod(&self.spec.name).await) }
    }

    /// Writes a file below a volume's path, as its container would, and reads it back.
    #[track_caller]
    pub fn writes(&self, path: &str, text: &str) -> impl Future<Output = Result> {
        let doing = self.begin(&format!("writes(\"{path}\")"), Location::caller());
        async move { doing.done(self.shared.bed.write_file(&self.spec, path, text).await) }
    }

    /// Begins to write a file below a volume's path over and over, and never makes it durable.
    #[track_caller]
    pub fn keeps_writing(&self, path: &str) -> Result {
        let doing = self.begin(&format!("keeps_writing(\"{path}\")"), Location::caller());
        doing.done(self.shared.bed.begin_writing(&self.spec, path))
    }

    /// Reads a file below a volume's path, and compares it.
    #[track_caller]
    pub fn reads(&self, path: &str, text: &str) -> impl Future<Output = Result> {
        let doing = self.begin(&format!("reads(\"{path}\")"), Location::caller());
        async move { doing.done(self.shared.bed.read_file(&self.spec, path, text).await) }
    }

    /// Whether a file below a volume's path holds this text.
    #[track_caller]
    pub fn holds(&self, path: &str, text: &str) -> impl Future<Output = Result<bool>> {
        let doing = self.begin(&format!("holds(\"{path}\")"), Location::caller());
        async move { doing.done(self.shared.bed.file_holds(&self.spec, path, text).await) }
    }

    /// Tries to write a file below a volume's path, and finds the file system read-only.
    #[track_caller]
    pub fn cannot_write(&self, path: &str) -> impl Future<Output = Result> {
        let doing = self.begin(&format!("cannot_write(\"{path}\")"), Location::caller());
        async move { doing.done(self.shared.bed.write_is_refused(&self.spec, path).await) }
    }

    pub(super) fn begin(&self, step: &str, location: &Location<'_>) -> Doing {
        self.shared.begin(&format!("{}.{step}", self.spec.name), location)
    }
}
