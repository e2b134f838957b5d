//! Node calls that a case makes itself, in any order, twice, with other flags. They are judged by their answers and by
//! the mounts in the kernel.

mod content;
mod other_directory;
mod paths;
mod sizes;
mod timing;

use std::cell::{Cell, RefCell};
use std::os::unix::fs::FileTypeExt;
use std::panic::Location;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use contracts::driver::NOT_MOUNTED;
use serde_json::{Value, json};

use super::{Answer, Cx, Doing, Shared, Volume};
use crate::bed::StepError;
use crate::bed::node_calls::{NodeUse, VolumeFields, mounts_at};
use crate::dead_end::UNDOES;
use crate::failure::{Result, place};

pub use other_directory::OtherDirectory;
pub use sizes::FileSystem;

/// The number of calls to undo another, after which a driver will not do it.
const UNDO_TRIES: usize = 3;

/// The time before such a call is made again.
const BEFORE_ANOTHER_TRY: Duration = Duration::from_millis(500);

/// A call that is made when its future is first polled.
pub type Call = Pin<Box<dyn Future<Output = Result<Answer>>>>;

/// A volume that a case stages and publishes itself. Mounts and attachments that the case leaves are undone at its end.
pub struct NodeCalls {
    pub(super) shared: Rc<Shared>,
    volume: String,
    directory: PathBuf,
    fields: RefCell<VolumeFields>,
    publish_context: RefCell<Value>,
    /// The end of the bytes that were written, if the volume is a device.
    written: Cell<u64>,
    /// The volume is published with its context only, and never staged.
    inline: bool,
}

impl Cx {
    /// Attaches a volume, if the driver attaches, for a case that makes the node calls itself.
    #[track_caller]
    pub fn node_calls(&self, volume: &Volume) -> impl Future<Output = Result<NodeCalls>> {
        self.attached(volume, format!("cx.node_calls(\"{}\")", volume.name), |fields| fields)
    }

    /// The same for the volume of a CreateVolume that the case made itself, with the capability of another volume.
    #[track_caller]
    pub fn node_calls_of(&self, made: &Answer, other: &Volume) -> impl Future<Output = Result<NodeCalls>> {
        let (handle, context) =
            (made.text("/volume/volumeId").to_owned(), made.part("/volume/volumeContext"));
        let step = format!("cx.node_calls_of(.., \"{}\")", other.name);
        self.attached(other, step, |fields| VolumeFields { handle, context, ..fields })
    }

    #[track_caller]
    fn attached(
        &self,
        volume: &Volume,
        step: String,
        change: impl FnOnce(VolumeFields) -> VolumeFields,
    ) -> impl Future<Output = Result<NodeCalls>> {
        let caller = Location::caller();
        let doing = self.shared.begin(&step, caller);
        let (shared, volume) = (self.shared(), volume.name.clone());
        async move {
            let fields = change(doing.done(shared.bed.volume_fields(&volume))?);
            let calls = doing.done(NodeCalls::new(shared, volume, fields, false))?;
            calls.attach(caller).await?;
            Ok(calls)
        }
    }

    /// The calls for an inline volume of this name, which exists as long as it is published.
    #[track_caller]
    pub fn inline_calls(&self, volume: &str) -> Result<NodeCalls> {
        let doing = self.shared.begin(&format!("cx.inline_calls(\"{volume}\")"), Location::caller());
        let capability = json!({ "mount": {}, "accessMode": { "mode": "SINGLE_NODE_WRITER" } });
        let mut context = json!(self.shared.bed.manifest().volume.inline_attributes);
        let pod = format!("{volume}-pod");
        for (key, value) in
            [("ephemeral", "true"), ("pod.name", &pod), ("pod.namespace", "default"), ("pod.uid", &pod)]
        {
            context[format!("csi.storage.k8s.io/{key}")] = json!(value);
        }
        // Other cases on the same driver have others.
        let handle = format!("csi-{:016x}-{volume}{}", self.seed(), self.shared.bed.tag());
        self.shared.bed.name_inline(volume, &handle);
        let fields = VolumeFields { handle, capability, context, is_block: false };
        doing.done(NodeCalls::new(self.shared(), volume.to_owned(), fields, true))
    }

    /// The ControllerPublishVolume request for a volume and the node.
    #[track_caller]
    pub fn attach_request(&self, volume: &Volume) -> impl Future<Output = Result<Value>> + use<> {
        let caller = Location::caller();
        let doing = self.shared.begin(&format!("cx.attach_request(\"{}\")", volume.name), caller);
        let (cx, fields) = (Cx { shared: self.shared() }, self.shared.bed.volume_fields(&volume.name));
        async move {
            let fields = doing.done(fields)?;
            let node = cx.call("NodeGetInfo", json!({})).await?;
            Ok(attach_request(&fields, node.text("/nodeId")))
        }
    }

    /// Whether the driver stages volumes.
    pub fn driver_stages(&self) -> bool {
        self.shared.bed.stages()
    }

    /// Whether the driver distinguishes a volume for one pod from a volume that several pods of a node share.
    pub fn distinguishes_writers(&self) -> bool {
        self.shared.bed.distinguishes_writers()
    }
}

impl NodeCalls {
    fn new(
        shared: Rc<Shared>,
        volume: String,
        fields: VolumeFields,
        inline: bool,
    ) -> std::result::Result<Self, StepError> {
        let directory = shared.bed.node_use_directory(&volume);
        let used =
            NodeUse { handle: fields.handle.clone(), directory: directory.clone(), ..NodeUse::default() };
        std::fs::create_dir_all(used.staging()).map_err(|error| StepError::ours(&error))?;
        shared.bed.made.node_uses.borrow_mut().insert(volume.clone(), used);
        let (fields, publish_context) = (RefCell::new(fields), RefCell::new(json!({})));
        let written = Cell::new(0);
        Ok(Self { shared, volume, directory, fields, publish_context, written, inline })
    }

    /// Changes the volume capability of each later request.
    pub fn ask_with(&self, change: impl FnOnce(&mut Value)) {
        change(&mut self.fields.borrow_mut().capability);
    }

    pub fn staging(&self) -> PathBuf {
        self.directory.join("staging")
    }

    /// The path of a target, in a directory of its own.
    pub fn target(&self, name: &str) -> PathBuf {
        self.directory.join(name).join("mount")
    }

    pub fn handle(&self) -> String {
        self.fields.borrow().handle.clone()
    }

    /// The file of this name in the volume mounted at a path; for a block volume, the device node at the path.
    pub fn file(&self, at: &Path, name: &str) -> PathBuf {
        if self.fields.borrow().is_block { at.to_owned() } else { at.join(name) }
    }

    /// Whether a path is a block device node.
    pub fn is_device(&self, path: &Path) -> bool {
        path.metadata().is_ok_and(|found| found.file_type().is_block_device())
    }

    /// The `publish_context` of the last ControllerPublishVolume.
    pub fn publish_context(&self) -> Value {
        self.publish_context.borrow().clone()
    }

    /// Detaches the volume, if the driver attaches.
    #[track_caller]
    pub fn detach(&self) -> impl Future<Output = Result> {
        let cx = self.cx();
        let request = self.used(|used| used.attached.take());
        let call = request.map(|request| cx.call("ControllerUnpublishVolume", request));
        async move {
            match call {
                Some(call) => call.await?.is("DRV-034", &["OK"]),
                None => Ok(()),
            }
        }
    }

    /// Attaches the volume again.
    #[track_caller]
    pub fn attach_again(&self) -> impl Future<Output = Result> {
        self.attach(Location::caller())
    }

    fn attach(&self, caller: &'static Location<'static>) -> impl Future<Output = Result> {
        let cx = self.cx();
        let step = self.shared.begin(&format!("attaching {}", self.volume), caller);
        async move {
            if !cx.driver_attaches() || self.inline {
                return Ok(());
            }
            let node = cx.call("NodeGetInfo", json!({})).await?;
            let request = attach_request(&self.fields.borrow(), node.text("/nodeId"));
            let undoing = json!({ "volumeId": request["volumeId"], "nodeId": request["nodeId"] });
            self.used(|used| used.attached = Some(undoing));
            let answer = cx.call("ControllerPublishVolume", request).await?;
            if !answer.is_ok() {
                let refused = format!("The volume cannot be attached: {answer:?}");
                return step.done(Err(StepError::Broken(vec![refused])));
            }
            *self.publish_context.borrow_mut() = answer.part("/publishContext");
            Ok(())
        }
    }

    pub fn stage_request(&self) -> Value {
        let VolumeFields { handle, capability, context, .. } = self.fields.borrow().clone();
        json!({
            "volumeId": handle,
            "publishContext": self.publish_context(),
            "stagingTargetPath": self.staging(),
            "volumeCapability": capability,
            "volumeContext": context,
        })
    }

    /// The request to publish at a target of this name. Creates the target's parent directory, as CSI requires of the
    /// caller: a driver may check the target before any other field.
    pub fn publish_request(&self, target: &str) -> Value {
        // If this fails, so does the call.
        drop(self.target(target).parent().map(std::fs::create_dir_all));
        let mut request = self.stage_request();
        request["targetPath"] = json!(self.target(target));
        if !self.shared.bed.stages() || self.inline {
            request["stagingTargetPath"] = json!("");
        }
        if self.inline {
            request["readonly"] = json!(self.shared.bed.manifest().volume.inline_read_only);
        }
        request
    }

    /// Stages the volume, if the driver stages.
    #[track_caller]
    pub fn stage(&self) -> impl Future<Output = Result<Answer>> + use<> {
        self.used(|used| used.staged = self.shared.bed.stages() && !self.inline);
        let staging = self.staging();
        if !is_listed(&staging) {
            // The caller creates the staging path. If this fails, so does the call.
            drop(std::fs::create_dir_all(staging));
        }
        self.ask("NodeStageVolume", self.stage_request())
    }

    /// Publishes the volume at a target of this name and creates the target's parent directory.
    #[track_caller]
    pub fn publish(&self, target: &str) -> impl Future<Output = Result<Answer>> + use<> {
        self.publish_as(target, |_| ())
    }

    /// Publishes the volume with a changed request.
    #[track_caller]
    pub fn publish_as(
        &self,
        target: &str,
        change: fn(&mut Value),
    ) -> impl Future<Output = Result<Answer>> + use<> {
        let path = self.target(target);
        self.used(|used| used.targets.insert(path));
        let mut request = self.publish_request(target);
        change(&mut request);
        self.ask("NodePublishVolume", request)
    }

    #[track_caller]
    pub fn unpublish(&self, target: &str) -> impl Future<Output = Result<Answer>> + use<> {
        let path = self.target(target);
        let call =
            self.ask("NodeUnpublishVolume", json!({ "volumeId": self.handle(), "targetPath": path.clone() }));
        let (shared, volume) = (Rc::clone(&self.shared), self.volume.clone());
        async move {
            let answer = call.await?;
            if answer.is_ok() {
                change(&shared, &volume, |used| used.targets.remove(&path));
            }
            Ok(answer)
        }
    }

    /// Unstages the volume, if the driver stages.
    #[track_caller]
    pub fn unstage(&self) -> impl Future<Output = Result<Answer>> + use<> {
        let request = json!({ "volumeId": self.handle(), "stagingTargetPath": self.staging() });
        let call = self.ask("NodeUnstageVolume", request);
        let (shared, volume) = (Rc::clone(&self.shared), self.volume.clone());
        async move {
            let answer = call.await?;
            if answer.is_ok() {
                change(&shared, &volume, |used| used.staged = false);
            }
            Ok(answer)
        }
    }

    /// Stages and publishes the volume; both calls must succeed.
    #[track_caller]
    pub fn set_up(&self, target: &str) -> impl Future<Output = Result> + use<> {
        let (stage, publish, cx) = (self.stage(), self.publish(target), self.cx());
        let (staging, path, caller) = (self.staging(), self.target(target), Location::caller());
        let step = format!("node.set_up(\"{target}\")");
        async move {
            stage.await?.succeeds()?;
            let published = publish.await?;
            let doing = cx.shared.begin(&step, caller);
            let is_staged =
                published.code() != "FailedPrecondition" || !doing.done(mounts_at(&staging))?.is_empty();
            let cause = format!(
                "NodeStageVolume answered OK and mounted nothing, and NodePublishVolume answered {}.",
                published.code()
            );
            cx.keeps("DRV-040", "NodeStageVolume", is_staged || !cx.shared.bed.stages(), &cause)?;
            published.succeeds()?;
            is_at(&cx, &path, caller)
        }
    }

    /// Checks that the volume is at a target that was published with OK.
    #[track_caller]
    pub fn is_published(&self, target: &str) -> Result {
        is_at(&self.cx(), &self.target(target), Location::caller())
    }

    /// Stages and publishes the volume. The first answer that is not OK.
    #[track_caller]
    pub fn refusal(&self, target: &str) -> impl Future<Output = Result<Option<Answer>>> + use<> {
        let (stage, publish) = (self.stage(), self.publish(target));
        async move {
            let used = [stage.await?, publish.await?];
            Ok(used.into_iter().find(|answer| !answer.is_ok()))
        }
    }

    /// Unpublishes the volume at a target of this name, which no process uses.
    #[track_caller]
    pub fn undo_publish(&self, target: &str) -> impl Future<Output = Result> {
        let at = Location::caller();
        async move { self.unpublished(target, at).await }
    }

    /// Unstages the volume, which is published nowhere on the node, if the driver stages.
    #[track_caller]
    pub fn undo_stage(&self) -> impl Future<Output = Result> {
        let at = Location::caller();
        async move { self.unstaged(at).await }
    }

    /// Unpublishes and unstages the volume.
    #[track_caller]
    pub fn tear_down(&self, target: &str) -> impl Future<Output = Result> {
        let at = Location::caller();
        async move {
            self.unpublished(target, at).await?;
            self.unstaged(at).await
        }
    }

    /// Unpublishes, and finds that nothing is mounted at the target. The rules of DRV-060 and DRV-070 judge the node's calls
    /// only, so those of a case are judged here.
    async fn unpublished(&self, target: &str, at: &'static Location<'static>) -> Result {
        self.undone(at, || self.unpublish(target)).await?;
        let cause = "NodeUnpublishVolume answered OK, and its target is still mounted.";
        self.is_unmounted("DRV-060", "NodeUnpublishVolume", &self.target(target), cause, at)
    }

    async fn unstaged(&self, at: &'static Location<'static>) -> Result {
        self.undone(at, || self.unstage()).await?;
        let cause = "NodeUnstageVolume answered OK, and the staging path is still mounted.";
        self.is_unmounted("DRV-070", "NodeUnstageVolume", &self.staging(), cause, at)
    }

    fn is_unmounted(
        &self,
        promise: &'static str,
        method: &str,
        path: &Path,
        cause: &str,
        at: &'static Location<'static>,
    ) -> Result {
        let doing = self.begin("the mounts", path, at);
        let is_mounted = !doing.done(mounts_at(path))?.is_empty();
        self.shared.claims(promise, method, is_mounted.then(|| cause.to_owned()), place(at))
    }

    /// Checks that a call which undoes another succeeds. A kernel may need a moment until a mount is free, so a refused
    /// call is made again.
    async fn undone<F>(&self, at: &'static Location<'static>, call: impl Fn() -> F) -> Result
    where
        F: Future<Output = Result<Answer>>,
    {
        let mut answer = call().await?;
        for _ in 1..UNDO_TRIES {
            if answer.is_ok() {
                break;
            }
            tokio::time::sleep(BEFORE_ANOTHER_TRY).await;
            answer = call().await?;
        }
        answer.is_at(UNDOES, &["OK"], at)
    }

    /// Whether a pod may write to the volume: the manifest may say that inline volumes are published for reading only.
    pub fn takes_writes(&self) -> bool {
        !(self.inline && self.shared.bed.manifest().volume.inline_read_only)
    }

    /// The options of each mount exactly at a path.
    #[track_caller]
    pub fn mounts_at(&self, path: &Path) -> Result<Vec<String>> {
        let doing = self.begin("the mounts", path, Location::caller());
        doing.done(mounts_at(path))
    }

    /// Stages the volume with this request.
    #[track_caller]
    pub fn stage_as(&self, request: Value) -> impl Future<Output = Result<Answer>> + use<> {
        self.used(|used| used.staged = true);
        self.ask("NodeStageVolume", request)
    }

    #[track_caller]
    fn ask(&self, method: &str, request: Value) -> impl Future<Output = Result<Answer>> + use<> {
        let cx = self.cx();
        let stages = self.shared.bed.stages() && !self.inline;
        let is_staging = matches!(method, "NodeStageVolume" | "NodeUnstageVolume");
        let skipped = (is_staging && !stages).then(|| Answer::ok(self.cx().shared(), method));
        let call = cx.call(method, request);
        async move {
            match skipped {
                Some(skipped) => Ok(skipped),
                None => call.await,
            }
        }
    }

    fn begin(&self, step: &str, path: &Path, caller: &Location<'_>) -> Doing {
        let name = path.strip_prefix(&self.directory).unwrap_or(path);
        self.shared.begin(&format!("{step} at {} of {}", name.display(), self.volume), caller)
    }

    fn used<T>(&self, with: impl FnOnce(&mut NodeUse) -> T) -> T {
        change(&self.shared, &self.volume, with)
    }

    fn cx(&self) -> Cx {
        Cx { shared: Rc::clone(&self.shared) }
    }
}

/// Checks that something is at a published path. The rule of DRV-055 judges the node's calls only, and these are a case's.
fn is_at(cx: &Cx, path: &Path, at: &Location<'_>) -> Result {
    let is_device = |there: std::fs::Metadata| there.file_type().is_block_device();
    let is_there = !mounts_at(path).is_ok_and(|mounts| mounts.is_empty())
        || std::fs::metadata(path).is_ok_and(is_device);
    let cause = (!is_there).then(|| NOT_MOUNTED.to_owned());
    cx.shared.claims("DRV-055", "NodePublishVolume", cause, place(at))
}

pub(super) fn attach_request(fields: &VolumeFields, node: &str) -> Value {
    json!({
        "volumeId": fields.handle,
        "nodeId": node,
        "volumeCapability": fields.capability,
        "volumeContext": fields.context,
        "readonly": false,
    })
}

/// Whether there is anything at a path, by the list of its directory: a mount there may have a server that hangs.
fn is_listed(path: &Path) -> bool {
    let listed =
        path.parent().and_then(|parent| std::fs::read_dir(parent).ok()).into_iter().flatten().flatten();
    listed.map(|entry| entry.file_name()).any(|name| path.file_name() == Some(&name))
}

fn change<T>(shared: &Rc<Shared>, volume: &str, with: impl FnOnce(&mut NodeUse) -> T) -> T {
    with(shared.bed.made.node_uses.borrow_mut().entry(volume.to_owned()).or_default())
}

impl std::fmt::Debug for NodeCalls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeCalls").field("volume", &self.volume).finish_non_exhaustive()
    }
}
