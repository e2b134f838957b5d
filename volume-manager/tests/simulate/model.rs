//! A kind of volume that knows what is really there, fails at random, and notices what must never happen.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use volume_manager::api::{PersistentSource, VolumeMode};
use volume_manager::error::{Classified, ErrorClass, Failure};
use volume_manager::names::{NodeName, PluginName, PodUid, SpecName};
use volume_manager::operation::OperationContext;
use volume_manager::paths::Paths;
use volume_manager::plugin::{
    Attacher, Before, DeviceMounter, Expand, Expander, Facts, Found, MountDevice, Mounted, Rebuilt, Remote,
    Scene, SetUp, Spec, Staged, TearDown, VolumePlugin,
};

/// The model. Clones are the same.
#[derive(Debug, Clone)]
pub(crate) struct Model {
    truth: Arc<Mutex<Truth>>,
}

/// What is really there, and what was done.
#[derive(Debug, Default)]
pub(crate) struct Truth {
    pub(crate) staged: BTreeSet<SpecName>,
    pub(crate) published: BTreeSet<(SpecName, PodUid)>,
    /// What the node wrote down before it staged.
    pub(crate) records: BTreeSet<SpecName>,
    /// Staged for certain, as far as the manager was told.
    stage_succeeded: BTreeSet<SpecName>,
    /// Pods whose containers may run.
    pub(crate) running: BTreeSet<PodUid>,
    in_flight: BTreeMap<SpecName, Vec<Verb>>,
    pub(crate) faults: bool,
    pub(crate) attachable: bool,
    pub(crate) remounts: bool,
    pub(crate) violations: Vec<String>,
    pub(crate) story: Vec<String>,
    random: Random,
}

/// What a call does.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Verb {
    Stage,
    Publish(PodUid),
    Unpublish(PodUid),
    Unstage,
    Expand,
}

/// Numbers that look random and are the same for the same seed (splitmix64).
#[derive(Debug, Clone, Default)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

#[derive(Debug, thiserror::Error)]
#[error("it failed: {0:?}")]
struct Fault(ErrorClass);

impl Classified for Fault {
    fn class(&self) -> ErrorClass {
        self.0
    }
}

impl Model {
    pub(crate) fn new(seed: u64) -> Self {
        let truth = Truth { random: Random(seed), faults: true, ..Truth::default() };
        Self { truth: Arc::new(Mutex::new(truth)) }
    }

    pub(crate) fn truth(&self) -> MutexGuard<'_, Truth> {
        self.truth.lock().expect("nothing panics while it holds this")
    }

    /// One call: it is checked, takes some time, does what it does or does not, and says so or does not.
    async fn call(&self, inner: &SpecName, verb: Verb) -> Result<(), Failure> {
        let guard = self.begin(inner, verb.clone());
        let (before, after, fate) = self.truth().decide();
        tokio::time::sleep(before).await;
        let done = fate.is_none_or(|(_, done)| done);
        if done {
            self.truth().take_effect(inner, &verb);
        }
        tokio::time::sleep(after).await;
        drop(guard);
        let mut truth = self.truth();
        match fate {
            None => {
                if verb == Verb::Stage {
                    truth.stage_succeeded.insert(inner.clone());
                }
                truth.story.push(format!("{verb:?} {inner}: ok"));
                Ok(())
            }
            Some((class, _)) => {
                truth.story.push(format!("{verb:?} {inner}: {class:?}, done {done}"));
                Err(Fault(class).into())
            }
        }
    }

    fn begin(&self, inner: &SpecName, verb: Verb) -> InFlight {
        let mut truth = self.truth();
        truth.check(inner, &verb);
        truth.story.push(format!("{verb:?} {inner}"));
        truth.in_flight.entry(inner.clone()).or_default().push(verb.clone());
        InFlight { model: self.clone(), inner: inner.clone(), verb }
    }
}

/// A call that has begun. Dropping it is its end, also when the manager crashes.
struct InFlight {
    model: Model,
    inner: SpecName,
    verb: Verb,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut truth = self.model.truth();
        if let Some(calls) = truth.in_flight.get_mut(&self.inner)
            && let Some(index) = calls.iter().position(|call| *call == self.verb)
        {
            calls.remove(index);
        }
    }
}

impl Truth {
    /// How long a call takes before and after its effect, and how it fails, if it does.
    fn decide(&mut self) -> (Duration, Duration, Option<(ErrorClass, bool)>) {
        let before = Duration::from_millis(self.random.below(50));
        let after = Duration::from_millis(self.random.below(50));
        if !self.faults {
            return (before, after, None);
        }
        let fate = match self.random.below(10) {
            0 => Some((ErrorClass::Final, false)),
            1 => Some((ErrorClass::Uncertain, false)),
            2 => Some((ErrorClass::Uncertain, true)),
            3 => Some((ErrorClass::Transient, false)),
            _ => None,
        };
        (before, after, fate)
    }

    fn take_effect(&mut self, inner: &SpecName, verb: &Verb) {
        match verb {
            Verb::Stage => drop(self.staged.insert(inner.clone())),
            Verb::Publish(pod) => drop(self.published.insert((inner.clone(), pod.clone()))),
            Verb::Unpublish(pod) => drop(self.published.remove(&(inner.clone(), pod.clone()))),
            Verb::Unstage => drop(self.staged.remove(inner)),
            Verb::Expand => {}
        }
    }

    /// What must never happen when a call begins.
    fn check(&mut self, inner: &SpecName, verb: &Verb) {
        let others = self.in_flight.get(inner).cloned().unwrap_or_default();
        let mut wrong = |rule: &str| {
            self.violations.push(format!("{rule}: {verb:?} {inner} beside {others:?}"));
        };
        let leaves = |verb: &Verb| matches!(verb, Verb::Unpublish(_));
        let alone = others.is_empty() || (leaves(verb) && others.iter().all(leaves));
        if !alone {
            wrong("INV-010/011 overlap");
        }
        match verb {
            Verb::Publish(pod) => {
                if !self.stage_succeeded.contains(inner) {
                    wrong("INV-001 publish without stage");
                }
                if !self.running.contains(pod) {
                    wrong("publish for a pod that is gone");
                }
            }
            Verb::Unpublish(pod) if self.running.contains(pod) => wrong("INV-015 running pod"),
            Verb::Unstage => {
                if self.published.iter().any(|(volume, _)| volume == inner) {
                    wrong("INV-003 unstage while published");
                }
                self.stage_succeeded.remove(inner);
            }
            Verb::Stage | Verb::Unpublish(_) | Verb::Expand => {}
        }
    }
}

fn handle(spec: &Spec) -> Option<&str> {
    match spec.persistent_source()? {
        PersistentSource::Csi(csi) => Some(csi.handle.as_str()),
        _ => None,
    }
}

#[async_trait]
impl VolumePlugin for Model {
    fn name(&self) -> PluginName {
        PluginName::new("kubernetes.io/toy")
    }

    fn supports(&self, spec: &Spec) -> bool {
        handle(spec).is_some()
    }

    fn volume_name(&self, spec: &Spec) -> Result<String, Failure> {
        Ok(handle(spec).expect("only what is supported is named").to_owned())
    }

    fn requires_remount(&self, _: &Spec, _: &Facts) -> bool {
        self.truth().remounts
    }

    fn can_attach(&self, _: &Spec, _: &Facts) -> bool {
        self.truth().attachable
    }

    fn can_device_mount(&self, _: &Spec) -> bool {
        true
    }

    fn target(&self, paths: &Paths, pod: &PodUid, inner: &SpecName) -> PathBuf {
        paths.pod_volume(pod, &self.name(), inner)
    }

    async fn set_up(&self, cx: &OperationContext, request: &SetUp) -> Result<Mounted, Failure> {
        let (pod, inner) = (request.pod.uid(), request.spec.name());
        let path = self.target(&cx.paths, &pod, &inner);
        // As a record in the pod's directory is: there before the call, gone only if it was the first.
        cx.host.make_dir_all(&path, 0o750).await?;
        let published = match cx.mark.pod_uncertain().await {
            Ok(()) => self.call(&inner, Verb::Publish(pod)).await,
            Err(withdrawn) => Err(withdrawn.into()),
        };
        if let Err(failure) = published {
            if request.before == Before::Absent && failure.class() != ErrorClass::Uncertain {
                cx.host.remove_dir(&path).await?;
            }
            return Err(failure);
        }
        Ok(Mounted { path, read_only: false, managed: true, selinux_relabel: false })
    }

    async fn tear_down(&self, cx: &OperationContext, request: &TearDown) -> Result<(), Failure> {
        self.call(&request.inner, Verb::Unpublish(request.pod.clone())).await?;
        let path = self.target(&cx.paths, &request.pod, &request.inner);
        match cx.host.remove_dir(&path).await {
            Err(error) if error.is_not_found() => Ok(()),
            removed => Ok(removed?),
        }
    }

    async fn reconstruct(&self, _: &Scene<'_>, found: &Found) -> Result<Rebuilt, Failure> {
        Ok(rebuilt(&found.inner))
    }

    async fn find_staged(&self, _: &Scene<'_>) -> Vec<Staged> {
        let alone = |inner| Staged { rebuilt: rebuilt(inner), pod: None };
        self.truth().records.iter().map(alone).collect()
    }

    fn attacher(&self) -> Option<&dyn Attacher> {
        Some(self)
    }

    fn device_mounter(&self) -> Option<&dyn DeviceMounter> {
        Some(self)
    }

    fn expander(&self) -> Option<&dyn Expander> {
        Some(self)
    }
}

fn rebuilt(inner: &SpecName) -> Rebuilt {
    let mut volume = super::world::volume(inner.as_str());
    volume.mode = Some(VolumeMode::Filesystem);
    Rebuilt {
        spec: Spec::persistent(Arc::new(volume), false),
        device_mount_path: Some(PathBuf::from(format!("/global/{inner}"))),
        selinux_label: None,
    }
}

#[async_trait]
impl Attacher for Model {
    async fn wait_for_attach(&self, _: &OperationContext, _: &Spec, path: &str) -> Result<String, Failure> {
        Ok(path.to_owned())
    }

    async fn attach(&self, _: &Remote<'_>, _: &Spec, _: &NodeName) -> Result<String, Failure> {
        Ok(String::new())
    }

    async fn detach(&self, _: &Remote<'_>, _: &str, _: &NodeName) -> Result<(), Failure> {
        Ok(())
    }

    async fn is_attached(&self, _: &Remote<'_>, _: &Spec, _: &NodeName) -> Result<bool, Failure> {
        Ok(true)
    }
}

#[async_trait]
impl DeviceMounter for Model {
    fn device_mount_path(&self, _: &Paths, spec: &Spec) -> Result<PathBuf, Failure> {
        Ok(PathBuf::from(format!("/global/{}", spec.name())))
    }

    async fn mount_device(&self, cx: &OperationContext, request: &MountDevice) -> Result<(), Failure> {
        let inner = request.spec.name();
        self.truth().records.insert(inner.clone());
        let staged = match cx.mark.device_uncertain(&request.path).await {
            Ok(()) => self.call(&inner, Verb::Stage).await,
            Err(withdrawn) => Err(withdrawn.into()),
        };
        if let Err(failure) = &staged
            && request.before == Before::Absent
            && failure.class() != ErrorClass::Uncertain
        {
            self.truth().records.remove(&inner);
        }
        staged
    }

    async fn unmount_device(&self, _: &OperationContext, _: &Path, spec: &Spec) -> Result<(), Failure> {
        self.call(&spec.name(), Verb::Unstage).await?;
        self.truth().records.remove(&spec.name());
        Ok(())
    }

    async fn device_mount_refs(&self, _: &OperationContext, _: &Path) -> Result<Vec<PathBuf>, Failure> {
        Ok(Vec::new())
    }
}

#[async_trait]
impl Expander for Model {
    fn requires_resize(&self) -> bool {
        true
    }

    async fn expand(&self, _: &OperationContext, request: &Expand) -> Result<(), Failure> {
        self.call(&request.spec.name(), Verb::Expand).await
    }
}
