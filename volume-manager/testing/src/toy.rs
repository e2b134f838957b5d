//! A kind of volume that exists only in a list of its operations, and fails on order.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use api::error::ErrorClass;
use api::names::{DriverName, Namespaced, PluginName, PodUid, SpecName};
use api::storage::{ClaimReference, CsiSource};
use api::{AccessMode, Bytes, Meta, PersistentSource, Volume, VolumeMode};
use async_trait::async_trait;
use plugin_api::error::{Classified, Failure};
use plugin_api::paths::Paths;
use plugin_api::{
    Attacher, Before, DeviceMounter, Expand, Expander, Facts, Found, MountDevice, Mounted, OperationContext,
    Rebuilt, RegisteredDriver, Remote, Scene, SetUp, Spec, Staged, TearDown, UnidentifiedStage, VolumePlugin,
};
use tokio::sync::Notify;

pub const NAME: &str = "kubernetes.io/toy";

#[derive(Debug, Clone, Default)]
pub struct Toy {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    released: Notify,
}

#[derive(Debug, Default)]
struct State {
    story: Vec<String>,
    failures: BTreeMap<String, VecDeque<ErrorClass>>,
    held: BTreeSet<String>,
    panics: BTreeSet<String>,
    attachable: bool,
    unstaged: bool,
    remounts: bool,
    unlabelled: bool,
    vanished: bool,
    /// The part that expands volumes, if not the toy.
    grown_by: Option<GrownBy>,
    /// Staged volumes that a restart finds, with their known pods.
    staged: BTreeMap<SpecName, BTreeSet<PodUid>>,
    /// Staged volumes without a record, with the pods that may have them.
    lost: BTreeMap<SpecName, BTreeSet<PodUid>>,
    /// The driver that was registered when something was published last.
    driver: Option<RegisteredDriver>,
}

/// The part that expands volumes outside of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GrownBy {
    Nothing,
    /// A controller that leaves nothing to do on the node.
    Controller,
}

/// The error that the toy fails with on order.
#[derive(Debug, thiserror::Error)]
#[error("{step} fails on order")]
struct OrderedFailure {
    step: String,
    class: ErrorClass,
}

impl Classified for OrderedFailure {
    fn class(&self) -> ErrorClass {
        self.class
    }
}

impl Toy {
    /// The next times `step` (such as `stage data`) is done, it fails like this instead.
    pub fn fail(&self, step: &str, classes: &[ErrorClass]) {
        self.lock().failures.entry(step.to_owned()).or_default().extend(classes);
    }

    /// The next time `step` is done, it panics instead.
    pub fn panic(&self, step: &str) {
        self.lock().panics.insert(step.to_owned());
    }

    /// Lets `step` begin and not end.
    pub fn hold(&self, step: &str) {
        self.lock().held.insert(step.to_owned());
    }

    /// Ends a held step.
    pub fn release(&self, step: &str) {
        self.lock().held.remove(step);
        self.shared.released.notify_waiters();
    }

    pub fn set_attachable(&self, attachable: bool) {
        self.lock().attachable = attachable;
    }

    pub fn set_stages(&self, stages: bool) {
        self.lock().unstaged = !stages;
    }

    pub fn set_remounts(&self, remounts: bool) {
        self.lock().remounts = remounts;
    }

    pub fn set_takes_labels(&self, takes_labels: bool) {
        self.lock().unlabelled = !takes_labels;
    }

    pub fn set_grown_by(&self, grown_by: GrownBy) {
        self.lock().grown_by = Some(grown_by);
    }

    /// Every attachment has vanished behind the controller's back.
    pub fn set_lost(&self, lost: bool) {
        self.lock().vanished = lost;
    }

    /// A restart finds this staged.
    pub fn leave_staged(&self, inner: &str) {
        self.leave_staged_for(inner, &[]);
    }

    /// Leaves a volume staged that these pods have.
    pub fn leave_staged_for(&self, inner: &str, pods: &[&str]) {
        let pods = pods.iter().map(|pod| PodUid::new(*pod)).collect();
        self.lock().staged.insert(inner.into(), pods);
    }

    /// A restart finds this staged, and not which volume it is.
    pub fn lose_staged(&self, inner: &str) {
        self.lose_staged_for(inner, &[]);
    }

    /// Leaves a volume staged without a record that these pods may have.
    pub fn lose_staged_for(&self, inner: &str, pods: &[&str]) {
        let pods = pods.iter().map(|pod| PodUid::new(*pod)).collect();
        self.lock().lost.insert(inner.into(), pods);
    }

    /// The driver that was registered when something was published last.
    pub fn driver(&self) -> Option<RegisteredDriver> {
        self.lock().driver.clone()
    }

    /// The operations since the last look, one line each.
    pub fn story(&self) -> String {
        std::mem::take(&mut self.lock().story).iter().map(|line| format!("{line}\n")).collect()
    }

    pub fn say(&self, line: String) {
        self.lock().story.push(line);
    }

    async fn step(&self, step: String) -> Result<(), Failure> {
        self.say(step.clone());
        self.released(&step).await;
        let panics = self.lock().panics.remove(&step);
        assert!(!panics, "{step} panics on order");
        self.fails(&step).map_or(Ok(()), Err)
    }

    fn fails(&self, step: &str) -> Option<Failure> {
        let class = self.lock().failures.get_mut(step).and_then(VecDeque::pop_front)?;
        self.say(format!("  {class:?}"));
        Some(OrderedFailure { step: step.to_owned(), class }.into())
    }

    /// Returns when the step is not held any more.
    async fn released(&self, step: &str) {
        loop {
            let released = self.shared.released.notified();
            if !self.lock().held.contains(step) {
                return;
            }
            released.await;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.shared.state.lock().expect("no test panics while it holds this")
    }
}

fn handle(spec: &Spec) -> Option<&str> {
    match spec.persistent_source()? {
        PersistentSource::Csi(csi) => Some(csi.handle.as_str()),
        _ => None,
    }
}

#[async_trait]
impl VolumePlugin for Toy {
    fn name(&self) -> PluginName {
        PluginName::new(NAME)
    }

    fn supports(&self, spec: &Spec) -> bool {
        handle(spec).is_some()
    }

    fn volume_name(&self, spec: &Spec) -> Result<String, Failure> {
        Ok(handle(spec).expect("only what is supported is named").to_owned())
    }

    fn requires_remount(&self, _: &Spec, _: &Facts) -> bool {
        self.lock().remounts
    }

    fn takes_selinux_mount(&self, _: &Spec, _: &Facts) -> bool {
        !self.lock().unlabelled
    }

    fn can_attach(&self, _: &Spec, facts: &Facts) -> bool {
        let object = facts.csi_drivers.get(&DriverName::new("toy.example"));
        self.lock().attachable && object.is_none_or(|driver| driver.attach_required)
    }

    fn can_device_mount(&self, _: &Spec) -> bool {
        !self.lock().unstaged
    }

    fn target(&self, paths: &Paths, pod: &PodUid, inner: &SpecName) -> PathBuf {
        paths.pod_volume(pod, &self.name(), inner)
    }

    async fn set_up(&self, cx: &OperationContext, request: &SetUp) -> Result<Mounted, Failure> {
        cx.mark.pod_uncertain().await?;
        self.lock().driver = cx.facts().registered.get(&DriverName::new("toy.example")).cloned();
        let (pod, inner) = (request.pod.uid(), request.spec.name());
        let verb = if request.before == Before::Mounted { "refresh" } else { "publish" };
        self.step(format!("{verb} {inner} {pod}")).await?;
        Ok(Mounted {
            path: self.target(&cx.paths, &pod, &inner),
            read_only: request.spec.read_only,
            managed: true,
            selinux_relabel: false,
        })
    }

    async fn tear_down(&self, _: &OperationContext, request: &TearDown) -> Result<(), Failure> {
        self.step(format!("unpublish {} {}", request.inner, request.pod)).await
    }

    async fn reconstruct(&self, _: &Scene<'_>, found: &Found) -> Result<Rebuilt, Failure> {
        let step = format!("read back {}", found.inner);
        self.released(&step).await;
        let failing = self.lock().failures.get_mut(&step).and_then(VecDeque::pop_front);
        if let Some(class) = failing {
            return Err(OrderedFailure { step, class }.into());
        }
        Ok(rebuilt(&found.inner, found.mode))
    }

    async fn find_staged(&self, _: &Scene<'_>) -> Vec<Staged> {
        let staged = self.lock().staged.clone();
        let of_all = |(inner, pods): (SpecName, BTreeSet<PodUid>)| {
            let rebuilt = rebuilt(&inner, VolumeMode::Filesystem);
            let of_pods = pods.into_iter().map(Some).chain([None]);
            of_pods.map(move |pod| Staged { rebuilt: rebuilt.clone(), pod })
        };
        staged.into_iter().flat_map(of_all).collect()
    }

    async fn find_unidentified_stages(&self, _: &Scene<'_>) -> Vec<UnidentifiedStage> {
        let lost = self.lock().lost.clone();
        let lost = lost.into_iter().map(|(inner, pods)| UnidentifiedStage {
            plugin: self.name(),
            at: PathBuf::from(format!("/global/{inner}")),
            mode: VolumeMode::Filesystem,
            pods,
            why: "its record is lost".to_owned(),
        });
        lost.collect()
    }

    async fn identify_orphan(&self, _: &Scene<'_>, found: &Found) -> Result<Option<Rebuilt>, Failure> {
        self.say(format!("identify {}", found.inner));
        self.released(&format!("identify {}", found.inner)).await;
        if let Some(failed) = self.fails(&format!("ask for {}", found.inner)) {
            return Err(failed);
        }
        let known = self.lock().failures.remove(&format!("identify {}", found.inner)).is_some();
        Ok(known.then(|| rebuilt(&found.inner, found.mode)))
    }

    fn attacher(&self) -> Option<&dyn Attacher> {
        Some(self)
    }

    fn device_mounter(&self) -> Option<&dyn DeviceMounter> {
        Some(self)
    }

    fn expander(&self) -> Option<&dyn Expander> {
        let grows_never = self.lock().grown_by == Some(GrownBy::Nothing);
        (!grows_never).then_some(self as _)
    }
}

/// A volume bound to the claim of its name.
pub fn volume(name: &str) -> Volume {
    let source = CsiSource { driver: "toy.example".into(), handle: name.into(), ..CsiSource::default() };
    Volume {
        meta: Meta::named("", name),
        capacity: Bytes(1 << 20),
        access_modes: vec![AccessMode::ReadWriteMany],
        claim: Some(ClaimReference { claim: Namespaced::new("default", name), uid: format!("uid-{name}") }),
        mode: Some(VolumeMode::Filesystem),
        source: PersistentSource::Csi(Box::new(source)),
        ..Volume::default()
    }
}

pub fn rebuilt(inner: &SpecName, mode: VolumeMode) -> Rebuilt {
    let mut volume = volume(inner.as_str());
    volume.mode = Some(mode);
    Rebuilt {
        spec: Spec::persistent(Arc::new(volume), false),
        device_mount_path: Some(PathBuf::from(format!("/global/{inner}"))),
        selinux_label: None,
    }
}

#[async_trait]
impl Attacher for Toy {
    async fn wait_for_attach(
        &self,
        _: &OperationContext,
        spec: &Spec,
        path: &str,
    ) -> Result<String, Failure> {
        self.released(&format!("wait for {}", spec.name())).await;
        Ok(path.to_owned())
    }

    async fn attach(
        &self,
        _: &Remote<'_>,
        spec: &Spec,
        node: &api::names::NodeName,
    ) -> Result<String, Failure> {
        self.step(format!("attach {} to {node}", spec.name())).await?;
        Ok(String::new())
    }

    async fn detach(&self, _: &Remote<'_>, volume: &str, node: &api::names::NodeName) -> Result<(), Failure> {
        self.step(format!("detach {volume} from {node}")).await
    }

    async fn is_attached(
        &self,
        _: &Remote<'_>,
        spec: &Spec,
        node: &api::names::NodeName,
    ) -> Result<bool, Failure> {
        let failed = self.fails(&format!("look for {} on {node}", spec.name()));
        failed.map_or_else(|| Ok(!self.lock().vanished), Err)
    }
}

#[async_trait]
impl DeviceMounter for Toy {
    fn device_mount_path(&self, _: &Paths, spec: &Spec) -> Result<PathBuf, Failure> {
        Ok(PathBuf::from(format!("/global/{}", spec.name())))
    }

    async fn mount_device(&self, cx: &OperationContext, request: &MountDevice) -> Result<(), Failure> {
        cx.mark.device_uncertain(&request.path).await?;
        self.step(format!("stage {}", request.spec.name())).await
    }

    async fn unmount_device(&self, _: &OperationContext, path: &Path, _: &Spec) -> Result<(), Failure> {
        let name = path.file_name().expect("the paths above have one").display();
        self.step(format!("unstage {name}")).await
    }

    async fn device_mount_refs(&self, _: &OperationContext, _: &Path) -> Result<Vec<PathBuf>, Failure> {
        Ok(Vec::new())
    }
}

#[async_trait]
impl Expander for Toy {
    fn requires_resize(&self) -> bool {
        self.lock().grown_by.is_none()
    }

    async fn expand(&self, _: &OperationContext, request: &Expand) -> Result<(), Failure> {
        self.step(format!("expand {} from {} to {}", request.spec.name(), request.old_size, request.new_size))
            .await
    }
}
