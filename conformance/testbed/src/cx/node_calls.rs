//! The calls of a node, made by a case: in any order, twice, at once, with other flags. What the kernel shows then is
//! the judge.

mod other_directory;
mod sizes;

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::os::unix::fs::FileTypeExt;
use std::panic::Location;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};

use contracts::driver::NOT_MOUNTED;
use contracts::rule::books::is_unknown;
use harness::load;
use harness::observe::mode_below_mounts;
use nix::fcntl::{OFlag, openat};
use nix::mount::MsFlags;
use nix::sys::stat::Mode;
use nix::unistd::{Gid, Uid};
use serde_json::{Value, json};

use super::{Answer, Cx, Doing, Shared, Volume};
use crate::bed::node_calls::{Asked, DriverSize, NodeUse, in_time, mounts_at};
use crate::bed::pattern;
use crate::bed::{DriverLoad, StepError};
use crate::failure::Result;

pub use other_directory::OtherDirectory;
pub use sizes::FileSystem;

/// How long a driver has to end by itself.
const GRACE: Duration = Duration::from_secs(5);

/// A call that is made when it is waited for.
pub type Call = Pin<Box<dyn Future<Output = Result<Answer>>>>;

/// A volume that a case stages and publishes itself. What it leaves is undone at its end.
pub struct NodeCalls {
    pub(super) shared: Rc<Shared>,
    volume: String,
    directory: PathBuf,
    asked: RefCell<Asked>,
    publish_context: RefCell<Value>,
    /// Up to where the volume was written, if it is a device.
    written: Cell<u64>,
    /// The volume is published with its context only, and never staged.
    inline: bool,
}

impl Cx {
    /// Attaches a volume where the driver attaches, for a case that makes the other calls itself.
    #[track_caller]
    pub fn node_calls(&self, volume: &Volume) -> impl Future<Output = Result<NodeCalls>> {
        let caller = Location::caller();
        let doing = self.shared.begin(&format!("cx.node_calls(\"{}\")", volume.name), caller);
        let (shared, volume) = (self.shared(), volume.name.clone());
        async move {
            let asked = doing.done(shared.bed.asked_of(&volume))?;
            let calls = doing.done(NodeCalls::new(shared, volume, asked, false))?;
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
        let handle = format!("csi-{:016x}-{volume}", self.seed());
        let asked = Asked { handle, capability, context, is_block: false };
        doing.done(NodeCalls::new(self.shared(), volume.to_owned(), asked, true))
    }

    /// Makes calls at once, and waits for the answer to each.
    #[track_caller]
    pub fn at_once(&self, calls: Vec<Call>) -> impl Future<Output = Result<Vec<Answer>>> + use<> {
        let doing = self.shared.begin("cx.at_once()", Location::caller());
        let (cx, count) = (Cx { shared: self.shared() }, calls.len());
        async move {
            let answered = Cell::new(0);
            let mut all = std::pin::pin!(all(calls, &answered));
            loop {
                let (limit, before) = (cx.shared.bed.patience_of_a_call(), answered.get());
                match load::within(limit, &mut all).await {
                    Ok(answers) => {
                        cx.keeps("DRV-093", "", true, "")?;
                        return answers.into_iter().collect();
                    }
                    Err(late) if late.is_cut_short => {
                        return doing.done(Err(StepError::Environment(vec![late.to_string()])));
                    }
                    // A driver may do one after the other.
                    Err(_) if answered.get() > before => {}
                    Err(_) => {
                        cx.shared.last.replace(doing);
                        let told = format!("Of {count} calls that were made at once, one is never answered.");
                        cx.keeps("DRV-093", "", false, &told)?;
                        return Ok(vec![]);
                    }
                }
            }
        }
    }

    /// Makes a call until it is not ABORTED. Nothing else may be under way, except what was cancelled.
    #[track_caller]
    pub fn until_free(&self, call: impl Fn() -> Call) -> impl Future<Output = Result<Answer>> {
        let doing = self.shared.begin("cx.until_free()", Location::caller());
        async move {
            let end = Instant::now() + self.shared.bed.patience_of_a_call();
            loop {
                let answer = call().await?;
                if answer.code() != "Aborted" {
                    self.keeps("DRV-130", answer.method(), true, "")?;
                    return Ok(answer);
                }
                if Instant::now() > end {
                    self.shared.last.replace(doing);
                    let answer = answer.asked("when no other call is under way");
                    answer.is("DRV-130", &["OK"])?;
                    return Ok(answer);
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }

    /// Makes a call until it is OK, and returns the last answer when it is not in time, or is the same for good: what was
    /// cancelled may still be under way, and in its way.
    #[track_caller]
    pub fn until_ok(&self, call: impl Fn() -> Call) -> impl Future<Output = Result<Answer>> {
        self.shared.begin("cx.until_ok()", Location::caller());
        async move {
            /// A call that is cancelled goes on no longer than this, once others fail in the same way.
            const FOR_GOOD: Duration = Duration::from_secs(2);
            let end = Instant::now() + self.shared.bed.patience_of_a_call();
            let (mut said, mut since) = (String::new(), Instant::now());
            loop {
                let answer = call().await?;
                if answer.words() != said {
                    (said, since) = (answer.words(), Instant::now());
                }
                let is_final =
                    !is_unknown(answer.code()) && since.elapsed() > FOR_GOOD.max(self.shared.bed.slowest());
                if answer.is_ok() || is_final || Instant::now() > end {
                    return Ok(answer);
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }

    /// Makes a call, and cancels it after so long if it is not answered.
    pub async fn cancels(&self, call: Call, after: Duration) {
        drop(tokio::time::timeout(after, call).await);
    }

    /// Makes a call, kills the driver so long afterwards, whether it has answered or not, and starts it again.
    #[track_caller]
    pub fn driver_dies_during(&self, call: Call, after: Duration) -> impl Future<Output = Result> + use<> {
        let doing = self.shared.begin("cx.driver_dies_during()", Location::caller());
        let shared = self.shared();
        async move {
            let kill = async {
                tokio::time::sleep(after).await;
                shared.bed.kill_driver().await;
            };
            drop(tokio::join!(call, kill));
            let started = shared.bed.start_driver().await;
            doing.done(started.map_err(|error| StepError::of_testbed(&error)))
        }
    }

    /// Makes a call, kills the driver as soon as something is mounted at a path, and starts it again.
    #[track_caller]
    pub fn driver_dies_at_mount(&self, call: Call, path: &Path) -> impl Future<Output = Result> + use<> {
        /// A driver that mounts nothing there is killed all the same.
        const LONGEST: Duration = Duration::from_secs(1);
        let doing = self.shared.begin("cx.driver_dies_at_mount()", Location::caller());
        let (shared, path) = (self.shared(), path.to_owned());
        async move {
            let kill = async {
                let end = Instant::now() + LONGEST;
                // A driver records a mount a moment after it has made it: a pause would miss that moment.
                while mounts_at(&path).is_ok_and(|mounts| mounts.is_empty()) && Instant::now() < end {
                    tokio::task::yield_now().await;
                }
                shared.bed.kill_driver().await;
            };
            drop(tokio::join!(call, kill));
            let started = shared.bed.start_driver().await;
            doing.done(started.map_err(|error| StepError::of_testbed(&error)))
        }
    }

    /// Asks the driver to end (SIGTERM), and kills it when it does not.
    #[track_caller]
    pub fn driver_is_terminated(&self) -> impl Future<Output = ()> + use<> {
        let shared = self.shared();
        shared.begin("cx.driver_is_terminated()", Location::caller());
        async move {
            shared.bed.end_driver(GRACE).await;
        }
    }

    /// How many files and directories there are in the driver's own.
    #[track_caller]
    pub fn driver_files(&self) -> Result<usize> {
        let doing = self.shared.begin("cx.driver_files()", Location::caller());
        doing.done(self.shared.bed.driver_files())
    }

    /// The current size of the driver and its node.
    #[track_caller]
    pub fn driver_load(&self) -> Result<DriverLoad> {
        let doing = self.shared.begin("cx.driver_load()", Location::caller());
        doing.done(self.shared.bed.driver_load())
    }

    /// The ControllerPublishVolume request for a volume and the node.
    #[track_caller]
    pub fn attach_request(&self, volume: &Volume) -> impl Future<Output = Result<Value>> + use<> {
        let caller = Location::caller();
        let doing = self.shared.begin(&format!("cx.attach_request(\"{}\")", volume.name), caller);
        let (cx, asked) = (Cx { shared: self.shared() }, self.shared.bed.asked_of(&volume.name));
        async move {
            let asked = doing.done(asked)?;
            let node = cx.call("NodeGetInfo", json!({})).await?;
            Ok(attach_request(&asked, node.text("/nodeId")))
        }
    }

    /// Whether the driver stages volumes.
    pub fn driver_stages(&self) -> bool {
        self.shared.bed.stages()
    }

    /// How many descriptors, threads and processes the driver has.
    #[track_caller]
    pub fn driver_size(&self) -> Result<DriverSize> {
        let doing = self.shared.begin("cx.driver_size()", Location::caller());
        doing.done(self.shared.bed.driver_size())
    }

    /// Whether the driver tells a volume for one pod from one that several pods of a node share.
    pub fn tells_writers_apart(&self) -> bool {
        self.shared.bed.tells_writers_apart()
    }
}

impl NodeCalls {
    fn new(
        shared: Rc<Shared>,
        volume: String,
        asked: Asked,
        inline: bool,
    ) -> std::result::Result<Self, StepError> {
        let directory = shared.bed.node_use_directory(&volume);
        let used =
            NodeUse { handle: asked.handle.clone(), directory: directory.clone(), ..NodeUse::default() };
        std::fs::create_dir_all(used.staging()).map_err(|error| StepError::ours(&error))?;
        shared.bed.made.node_uses.borrow_mut().insert(volume.clone(), used);
        let (asked, publish_context) = (RefCell::new(asked), RefCell::new(json!({})));
        let written = Cell::new(0);
        Ok(Self { shared, volume, directory, asked, publish_context, written, inline })
    }

    /// Changes what each request from now on says of how the volume is used.
    pub fn ask_with(&self, change: impl FnOnce(&mut Value)) {
        change(&mut self.asked.borrow_mut().capability);
    }

    pub fn staging(&self) -> PathBuf {
        self.directory.join("staging")
    }

    /// The path of a target, in a directory of its own.
    pub fn target(&self, name: &str) -> PathBuf {
        self.directory.join(name).join("mount")
    }

    pub fn handle(&self) -> String {
        self.asked.borrow().handle.clone()
    }

    /// A file in the volume at a path; where the volume is a device, the device there.
    pub fn file(&self, at: &Path, name: &str) -> PathBuf {
        if self.asked.borrow().is_block { at.to_owned() } else { at.join(name) }
    }

    /// Whether the node of a device is at a path.
    pub fn is_device(&self, path: &Path) -> bool {
        path.metadata().is_ok_and(|found| found.file_type().is_block_device())
    }

    /// The context of the last attachment.
    pub fn publish_context(&self) -> Value {
        self.publish_context.borrow().clone()
    }

    /// Detaches the volume, where the driver attaches.
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
            let request = attach_request(&self.asked.borrow(), node.text("/nodeId"));
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
        let Asked { handle, capability, context, .. } = self.asked.borrow().clone();
        json!({
            "volumeId": handle,
            "publishContext": self.publish_context(),
            "stagingTargetPath": self.staging(),
            "volumeCapability": capability,
            "volumeContext": context,
        })
    }

    /// The request to publish at a target of this name. The directory above it is there: CSI has the caller see to it,
    /// and a driver may look at the target before it looks at anything else.
    pub fn publish_request(&self, target: &str) -> Value {
        // Without it the call fails.
        drop(self.target(target).parent().map(std::fs::create_dir_all));
        let mut request = self.stage_request();
        request["targetPath"] = json!(self.target(target));
        if !self.shared.bed.stages() || self.inline {
            request["stagingTargetPath"] = json!("");
        }
        request
    }

    /// Stages it, where the driver stages.
    #[track_caller]
    pub fn stage(&self) -> impl Future<Output = Result<Answer>> + use<> {
        self.used(|used| used.staged = self.shared.bed.stages() && !self.inline);
        if !self.staging().is_symlink() {
            // It is the caller's; without it the call fails.
            drop(std::fs::create_dir_all(self.staging()));
        }
        self.ask("NodeStageVolume", self.stage_request())
    }

    /// Publishes it at a target of this name, whose directory is made.
    #[track_caller]
    pub fn publish(&self, target: &str) -> impl Future<Output = Result<Answer>> + use<> {
        self.publish_as(target, |_| ())
    }

    /// Publishes it with another request than that of an ordinary pod.
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

    /// Unstages it, where the driver stages.
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

    /// Stages and publishes it, both of which must work.
    #[track_caller]
    pub fn set_up(&self, target: &str) -> impl Future<Output = Result> + use<> {
        let (stage, publish, cx) = (self.stage(), self.publish(target), self.cx());
        let (staging, path, caller) = (self.staging(), self.target(target), Location::caller());
        async move {
            stage.await?.succeeds()?;
            let published = publish.await?;
            let doing = cx.shared.begin("looking at what was staged", caller);
            let is_staged =
                published.code() != "FailedPrecondition" || !doing.done(mounts_at(&staging))?.is_empty();
            let told = format!(
                "NodeStageVolume answered OK and mounted nothing, and NodePublishVolume answered {}.",
                published.code()
            );
            cx.keeps("DRV-040", "NodeStageVolume", is_staged || !cx.shared.bed.stages(), &told)?;
            published.succeeds()?;
            // No rule judges calls of a case's own.
            let is_device = |there: std::fs::Metadata| there.file_type().is_block_device();
            let is_there = !mounts_at(&path).is_ok_and(|mounts| mounts.is_empty())
                || std::fs::metadata(&path).is_ok_and(is_device);
            cx.keeps("DRV-055", "NodePublishVolume", is_there, NOT_MOUNTED)
        }
    }

    /// Unpublishes and unstages it, both of which must work.
    #[track_caller]
    pub fn tear_down(&self, target: &str) -> impl Future<Output = Result> + use<> {
        let (unpublish, unstage) = (self.unpublish(target), self.unstage());
        async move {
            unpublish.await?.succeeds()?;
            unstage.await?.succeeds()
        }
    }

    /// The options of each mount exactly at a path.
    #[track_caller]
    pub fn mounts_at(&self, path: &Path) -> Result<Vec<String>> {
        let doing = self.begin("the mounts", path, Location::caller());
        doing.done(mounts_at(path))
    }

    /// The mode of the directory or file at a path, below all that is mounted there.
    #[track_caller]
    pub fn mode_below(&self, path: &Path) -> Result<Option<u32>> {
        let doing = self.begin("what lies below the mount", path, Location::caller());
        doing.done(mode_below_mounts(path).map_err(|error| StepError::ours(&error)))
    }

    /// Writes a pattern of this name, durably, to the volume at a path.
    #[track_caller]
    pub fn writes(&self, at: &Path, name: &str) -> impl Future<Output = Result> {
        self.write(at, name, true, Location::caller())
    }

    /// The same, and leaves it in the memory of the machine.
    #[track_caller]
    pub fn writes_to_cache(&self, at: &Path, name: &str) -> impl Future<Output = Result> {
        self.write(at, name, false, Location::caller())
    }

    fn write(
        &self,
        at: &Path,
        name: &str,
        durable: bool,
        caller: &Location<'_>,
    ) -> impl Future<Output = Result> {
        let (path, seed) = (self.file(at, name), self.seed_of(name));
        let doing = self.begin("writing", &path, caller);
        async move {
            let written = in_time("writing", move || pattern::write(&path, seed, durable)).await;
            let said = |error| StepError::Broken(vec!["The volume cannot be written.".to_owned(), error]);
            let end = doing
                .done(written.and_then(|end| end.map_err(|error: std::io::Error| said(error.to_string()))))?;
            self.written.set(end);
            Ok(())
        }
    }

    /// Whether the volume at a path has the pattern of this name.
    #[track_caller]
    pub fn has(&self, at: &Path, name: &str) -> impl Future<Output = Result<bool>> {
        let (path, seed) = (self.file(at, name), self.seed_of(name));
        let doing = self.begin("reading", &path, Location::caller());
        async move {
            // What cannot be read is not there.
            let read = in_time("reading", move || pattern::is_there(&path, seed).unwrap_or(false)).await;
            doing.done(read)
        }
    }

    /// Whether a process with no other rights can write to the root of the volume at a path by its group.
    #[track_caller]
    pub fn group_can_write(&self, at: &Path, group: u32) -> impl Future<Output = Result<bool>> {
        let path = at.to_owned();
        let doing = self.begin("writing as a group", &path, Location::caller());
        async move { doing.done(in_time("writing", move || write_as(group, &path)).await) }
    }

    /// Opens a file of the volume at a path, as a process of the pod would that goes on running.
    #[track_caller]
    pub fn opens(&self, at: &Path, name: &str) -> impl Future<Output = Result<File>> {
        let path = self.file(at, name);
        let doing = self.begin("opening", &path, Location::caller());
        async move {
            let opened = in_time("opening", move || File::create(path)).await;
            doing.done(opened.and_then(|opened| opened.map_err(|error| StepError::ours(&error))))
        }
    }

    /// Unmounts every mount exactly at a path, behind the driver's back, as a reboot of the machine does.
    #[track_caller]
    pub fn loses_mount(&self, path: &Path) -> Result {
        let doing = self.begin("losing the mount", path, Location::caller());
        let there = doing.done(mounts_at(path))?;
        let unmount = |_| nix::mount::umount(path).map_err(|error| StepError::ours(&error));
        doing.done(there.into_iter().try_for_each(unmount))
    }

    /// Binds what is at a path over itself, as a caller that has lost count of its mounts does.
    #[track_caller]
    pub fn stacks(&self, path: &Path) -> Result {
        let doing = self.begin("binding once more", path, Location::caller());
        let bound = nix::mount::mount(Some(path), path, None::<&str>, MsFlags::MS_BIND, None::<&str>);
        doing.done(bound.map_err(|error| StepError::ours(&error)))
    }

    /// Replaces a path by a symbolic link to a directory, and returns that directory.
    #[track_caller]
    pub fn links(&self, path: &Path) -> Result<PathBuf> {
        let doing = self.begin("linking", path, Location::caller());
        let elsewhere = self.directory.join("elsewhere");
        let link = || {
            std::fs::create_dir_all(&elsewhere)?;
            path.parent().map(std::fs::create_dir_all).transpose()?;
            if path.exists() {
                std::fs::remove_dir(path)?;
            }
            std::os::unix::fs::symlink(&elsewhere, path)
        };
        doing.done(link().map_err(|error| StepError::ours(&error)))?;
        Ok(elsewhere)
    }

    /// Removes a symbolic link, and makes a directory in its place.
    #[track_caller]
    pub fn unlinks(&self, path: &Path) -> Result {
        let doing = self.begin("unlinking", path, Location::caller());
        self.unlink_if_there(path);
        doing.done(std::fs::create_dir_all(path).map_err(|error| StepError::ours(&error)))
    }

    /// Removes a symbolic link that the driver may have removed.
    pub fn unlink_if_there(&self, path: &Path) {
        if path.is_symlink() {
            drop(std::fs::remove_file(path));
        }
    }

    /// Stages it with this request.
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

    fn seed_of(&self, name: &str) -> u64 {
        let mix = |seed: u64, byte: u8| seed.wrapping_mul(31).wrapping_add(u64::from(byte));
        (self.volume.bytes().chain(name.bytes())).fold(self.shared.bed.seed().wrapping_add(17), mix)
    }

    fn used<T>(&self, with: impl FnOnce(&mut NodeUse) -> T) -> T {
        change(&self.shared, &self.volume, with)
    }

    fn cx(&self) -> Cx {
        Cx { shared: Rc::clone(&self.shared) }
    }
}

pub(super) fn attach_request(asked: &Asked, node: &str) -> Value {
    json!({
        "volumeId": asked.handle,
        "nodeId": node,
        "volumeCapability": asked.capability,
        "volumeContext": asked.context,
        "readonly": false,
    })
}

/// Writes a file in a directory as a user without rights. A thread of its own does so: the rights of one that is used
/// again must not change.
fn write_as(group: u32, directory: &Path) -> bool {
    // Not by its path: only root may pass the node's directories.
    let Ok(directory) = File::open(directory) else { return false };
    let thread = std::thread::spawn(move || {
        nix::unistd::setfsgid(Gid::from_raw(group));
        nix::unistd::setfsuid(Uid::from_raw(group));
        let flags = OFlag::O_CREAT | OFlag::O_WRONLY | OFlag::O_CLOEXEC;
        openat(&directory, "of-the-group", flags, Mode::from_bits_truncate(0o660)).is_ok()
    });
    thread.join().unwrap_or(false)
}

/// Waits for all of them together, and counts those that are answered.
async fn all(mut calls: Vec<Call>, answered: &Cell<usize>) -> Vec<Result<Answer>> {
    let mut answers: Vec<Option<Result<Answer>>> = calls.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        for (call, answer) in calls.iter_mut().zip(&mut answers).filter(|(_, answer)| answer.is_none()) {
            if let Poll::Ready(said) = call.as_mut().poll(context) {
                *answer = Some(said);
                answered.set(answered.get() + 1);
            }
        }
        if answers.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    answers.into_iter().flatten().collect()
}

fn change<T>(shared: &Rc<Shared>, volume: &str, with: impl FnOnce(&mut NodeUse) -> T) -> T {
    with(shared.bed.made.node_uses.borrow_mut().entry(volume.to_owned()).or_default())
}

impl std::fmt::Debug for NodeCalls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeCalls").field("volume", &self.volume).finish_non_exhaustive()
    }
}
