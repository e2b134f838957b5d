//! The steps of a scenario, one function each. All that a step does to the world is in here.

use std::process::Stdio;
use std::time::Duration;

use api::{Claim, ConfigMap, Kind, Pod, Volume};
use harness::api_server::Disturbance;
use harness::journal::{Edge, Journal};
use harness::node::{Node, NodeError};
use serde_json::json;
use testbed::failure::chain;

use super::manifest;
use super::scenario::{Action, State, Step};
use super::world::{NAMESPACE, World, or_null};

/// The default time limit of a wait: longer than a pod waits for its volumes, and than a call may take. While nothing is
/// under way it costs no real time.
const LIMIT: Duration = Duration::from_secs(150);

/// A command that ends within this time counts as done at one moment.
const AT_ONCE: Duration = Duration::from_millis(50);

/// A failed step: the sentence first, then the state.
pub(super) type Failure = String;

/// A step in a few words.
pub(super) fn in_a_line(step: &Step) -> String {
    let mut words = vec![step.action.to_string()];
    let number = |value: Option<u64>, unit: &str| value.map(|value| format!("{value} {unit}"));
    words.extend(step.pod.clone());
    words.extend(step.volume.clone());
    words.extend(step.uid.clone());
    words.extend(step.state.map(|state| state.as_str().to_owned()));
    words.extend(
        step.request.iter().flat_map(|fault| fault.verb.clone().into_iter().chain(fault.kind.clone())),
    );
    words.extend(step.label.clone());
    words.extend(step.method.clone());
    words.extend(step.count.map(|count| format!("×{count}")));
    words.extend(step.rule.as_ref().map(|rule| rule.method.clone()));
    words.extend(step.rule.as_ref().and_then(|rule| rule.pod.clone()));
    words.extend(number(step.size_mi, "Mi"));
    words.extend(number(step.ms, "ms"));
    words.extend(step.cmd.as_ref().and_then(|cmd| Some(cmd.lines().next()?.chars().take(60).collect())));
    words.join(" ")
}

/// Whether a step takes no time. Consecutive steps of this kind are done at one moment: in the recordings they took a
/// hundredth of the time between two looks of the node at its pods.
pub(super) fn takes_no_time(step: &Step) -> bool {
    use Action as A;
    match step.action {
        A::AddPod | A::RemovePod | A::TerminatePod | A::SyncPod => true,
        A::Inject | A::DisturbApi | A::HealApi | A::Snapshot => true,
        A::Restart | A::KillNode | A::StartNode | A::KillDriver | A::UnregisterDriver => true,
        A::Expand | A::UpdateConfigMap | A::Sh => true,
        A::WaitMounted | A::WaitUnmounted | A::WaitIdle | A::WaitState => false,
        A::WaitRpc | A::StartDriver | A::RegisterDriver | A::ShutDownNode | A::Sleep => false,
    }
}

impl World {
    /// Does one step. Returns what would not happen, if something would not.
    pub(super) async fn perform(&mut self, number: usize, step: &Step) -> Option<Failure> {
        self.log.step(number, step);
        let done = match step.action {
            Action::AddPod => self.add_pod(step),
            Action::RemovePod => self.remove_pod(step).await,
            Action::TerminatePod => self.node.terminate_pod(pod(step)).await.map_err(|error| chain(&error)),
            Action::SyncPod => self.sync_pod(step).await,
            Action::WaitMounted => return self.wait_mounted(step).await,
            Action::WaitUnmounted => return self.wait_unmounted(step).await,
            Action::WaitIdle => return self.wait_idle(step).await,
            Action::WaitRpc => return self.wait_rpc(step).await,
            Action::WaitState => return self.wait_state(step).await,
            Action::Inject => self.inject(step),
            Action::DisturbApi => self.disturb_api(step),
            Action::HealApi => {
                self.api_server.calm();
                Ok(())
            }
            Action::Snapshot => {
                self.come_to_rest().await;
                self.snapshot(step.label.as_deref().unwrap_or_default()).await;
                Ok(())
            }
            Action::Restart => self.restart(step).await,
            Action::KillNode => {
                self.kill_node(step).await;
                Ok(())
            }
            Action::ShutDownNode => self.shut_down_node().await,
            Action::StartNode => self.start_node(step).await,
            Action::KillDriver => {
                self.stop_driver().await;
                Ok(())
            }
            Action::StartDriver => self.resume_driver().await,
            Action::UnregisterDriver => {
                self.withdraw();
                Ok(())
            }
            Action::RegisterDriver => {
                let registered = self.announce_after(0).await;
                registered.map_err(|error| vec![format!("{error:#}")])
            }
            Action::Expand => self.expand(step).await,
            Action::UpdateConfigMap => self.update_config_map(step),
            Action::Sleep => {
                self.sleep(Duration::from_millis(step.ms.unwrap_or_default())).await;
                Ok(())
            }
            Action::Sh => self.sh(step.cmd.as_deref().unwrap_or_default()).await,
        };
        done.err().map(|chain| chain.join(": "))
    }

    fn add_pod(&mut self, step: &Step) -> Result<(), Vec<String>> {
        let name = pod(step);
        let root = Self::root_path(&self.layout).to_string_lossy().into_owned();
        let document = self.scenario.pods.iter().find(|document| manifest::name(document) == name);
        let document = document.ok_or_else(|| vec![format!("there is no pod `{name}`")])?;
        let mut pod = manifest::pod(document, &root).map_err(|error| chain(&error))?;
        if let Some(uid) = &step.uid {
            pod.meta.uid.clone_from(uid);
        }
        let uid = self.node.add_pod(pod).map_err(|error| chain(&error))?.meta.uid.clone();
        self.log.pod_added(name, self.time.now());
        self.appeared.push(uid);
        self.pods.insert(name.to_owned());
        Ok(())
    }

    async fn remove_pod(&mut self, step: &Step) -> Result<(), Vec<String>> {
        let name = pod(step);
        let force = step.force.unwrap_or_default();
        match self.node.remove_pod(name, force).await {
            // Force comes after a removal without it, and the pod may have gone by then.
            Err(NodeError::Api { source, .. }) if force && source.is_not_found() => return Ok(()),
            removed => removed.map_err(|error| chain(&error))?,
        }
        self.pods.remove(name);
        self.leaving.push((name.to_owned(), self.time.now()));
        self.log.pod_removed(name, self.time.now());
        Ok(())
    }

    async fn sync_pod(&mut self, step: &Step) -> Result<(), Vec<String>> {
        let synced = self.node.sync_pod(pod(step)).await;
        let error = synced.as_ref().err().map_or_else(|| "<nil>".to_owned(), ToString::to_string);
        self.log.add_line("sync_pod_returned", json!({ "err": error, "ms": 0, "pod": pod(step) }));
        synced.map_err(|error| chain(&error))
    }

    async fn wait_mounted(&mut self, step: &Step) -> Option<Failure> {
        let name = pod(step).to_owned();
        let what = format!("the volumes of `{name}` are not mounted");
        let done = async move |world: &mut Self| {
            world.node.wait_mounted(&name, Duration::ZERO).await.is_ok().then_some(())
        };
        self.wait(step, &what, done).await
    }

    async fn wait_unmounted(&mut self, step: &Step) -> Option<Failure> {
        let name = pod(step).to_owned();
        let what = format!("the pod `{name}` still has volumes");
        let done = async move |world: &mut Self| {
            let is_known = world.pods.contains(&name) || world.leaving.iter().any(|(pod, _)| *pod == name);
            (!is_known).then_some(())
        };
        self.wait(step, &what, done).await
    }

    async fn wait_idle(&mut self, step: &Step) -> Option<Failure> {
        let done = async |world: &mut Self| {
            let dump = world.node.dump().await.ok()?;
            // An operation that is due and is not tried again is no longer wanted.
            let is_rest =
                dump.running.is_empty() && dump.waiting.iter().all(|waiting| waiting.due_in_ms == 0);
            // A call whose caller is gone counts too, as long as the driver works on it.
            let quiet = is_rest && world.journal.in_flight().is_empty() && world.is_quiet().await;
            quiet.then_some(())
        };
        let failure = self.wait(step, "the manager is not idle", done).await;
        self.log.add_line("idle", json!({ "ok": failure.is_none() }));
        failure
    }

    async fn wait_state(&mut self, step: &Step) -> Option<Failure> {
        let wanted = step.state.unwrap_or(State::Absent);
        let volume = step.volume.clone().unwrap_or_default();
        let pod = step.pod.clone();
        let of = pod.as_ref().map_or_else(String::new, |pod| format!(" for `{pod}`"));
        let what = format!("the volume `{volume}` is not {}{of}", wanted.as_str());
        let done = async move |world: &mut Self| {
            let dump = world.node.dump().await.ok()?;
            let handle = world.journal.symbols().handle(&volume)?;
            let is_of_volume = |name: &str| name.ends_with(&format!("^{handle}"));
            // An attempt under way is written down as uncertain, too.
            let busy = dump.running.iter().any(|running| running.split(' ').nth(1).is_some_and(is_of_volume));
            let mut entries = dump.actual.iter().filter(|(key, _)| is_of_volume(key));
            let entry = entries.find(|(key, _)| match (&pod, key.strip_prefix("pod ")) {
                (None, of_a_pod) => of_a_pod.is_none(),
                (Some(pod), Some(rest)) => {
                    let uid = rest.split(' ').next().unwrap_or_default();
                    world.journal.symbols().pod(uid) == *pod
                }
                (Some(_), None) => false,
            });
            let is = match entry.map(|(_, state)| state) {
                None => State::Absent,
                Some(state) if state.contains("Uncertain") => State::Uncertain,
                Some(state) if state.starts_with("DeviceNotMounted") => State::Absent,
                Some(_) => State::Mounted,
            };
            (is == wanted && !(busy && is == State::Uncertain)).then_some(())
        };
        self.wait(step, &what, done).await
    }

    async fn wait_rpc(&mut self, step: &Step) -> Option<Failure> {
        let method = step.method.clone().unwrap_or_default();
        let edge = if step.kind.as_deref() == Some("end") { Edge::End } else { Edge::Start };
        let count = step.count.unwrap_or(1);
        let ended = if edge == Edge::End { "ended" } else { "started" };
        let what = match count {
            1 => format!("no call of {method} has {ended}"),
            _ => format!("{count} calls of {method} have not {ended}"),
        };
        if let Some(proxy) = self.try_proxy() {
            // The next steps are done at the moment of that call, before its consequences.
            proxy.shut_at(&method, edge, count);
        }
        let wanted = method.clone();
        let done = async move |world: &mut Self| (world.journal.count(&wanted, edge) >= count).then_some(());
        let failure = self.wait(step, &what, done).await;
        if let Some(proxy) = self.try_proxy().filter(|_| failure.is_some()) {
            proxy.open();
        }
        self.log.add_line("rpc_seen", json!({ "method": method, "ok": failure.is_none() }));
        failure
    }

    /// Waits for a condition. The failure has the state that is there instead.
    async fn wait<F>(&mut self, step: &Step, what: &str, done: F) -> Option<Failure>
    where
        F: AsyncFnMut(&mut Self) -> Option<()>,
    {
        let limit = step.timeout_ms.map_or(LIMIT, Duration::from_millis);
        if self.pass(limit, done).await.is_some() {
            return None;
        }
        let mut lines = vec![format!("{what} after {} ms", limit.as_millis())];
        lines.extend(self.state().await);
        Some(lines.join("\n"))
    }

    /// Everything that is known of the moment.
    pub(super) async fn state(&self) -> Vec<String> {
        let mut lines = state_of(&self.node, &self.journal).await;
        if let Some(other) = self.other_node() {
            lines.extend(Self::with_name(state_of(&other.node, &other.journal).await));
        }
        lines
    }

    fn inject(&mut self, step: &Step) -> Result<(), Vec<String>> {
        let proxy = self.try_proxy().ok_or_else(|| vec!["there is no driver".to_owned()])?;
        let mut rule = step.rule.clone().unwrap_or_default();
        rule.code = rule.code.filter(|code| !code.is_empty());
        proxy.inject_in_turn(rule);
        Ok(())
    }

    fn disturb_api(&self, step: &Step) -> Result<(), Vec<String>> {
        let fault = step.request.clone().unwrap_or_default();
        let kind = fault.kind.and_then(|kind| Kind::ALL.iter().find(|known| known.as_str() == kind).copied());
        self.api_server.disturb(Disturbance {
            kind,
            verb: fault.verb.unwrap_or_default(),
            delay: Duration::from_millis(fault.delay_ms),
            unavailable: fault.unavailable,
            times: fault.times,
        });
        Ok(())
    }

    async fn restart(&mut self, step: &Step) -> Result<(), Vec<String>> {
        self.kill_node(step).await;
        let dropped = step.drop_pods.clone().unwrap_or_default();
        let volumes = step.drop_volumes.clone().unwrap_or_default();
        let lost = self.drop_objects(&dropped, &volumes);
        self.start_node(step).await?;
        lost
    }

    /// Kills the node where it stands. With `registerAfterMs` its driver is withdrawn before.
    async fn kill_node(&mut self, step: &Step) {
        if let Some(proxy) = self.try_proxy() {
            // The call in whose moment the node dies reaches the driver. What it led to would have come later.
            proxy.let_in();
        }
        self.come_to_rest().await;
        self.snapshot("before restart").await;
        if step.register_after_ms.unwrap_or_default() > 0 {
            self.withdraw();
        }
        self.node.kill().await;
        self.log.node_was_killed();
        // A dead node cannot report that these pods are gone.
        self.leaving.clear();
    }

    async fn start_node(&mut self, step: &Step) -> Result<(), Vec<String>> {
        let after = step.register_after_ms.unwrap_or_default();
        if after > 0 && step.action == Action::StartNode {
            self.withdraw();
        }
        let restart = json!({
            "driver_registered_after_ms": after,
            "dropped_pods": or_null(step.drop_pods.clone().unwrap_or_default()),
            "dropped_volume_objects": or_null(step.drop_volumes.clone().unwrap_or_default()),
        });
        self.log.add_line("restart", restart);
        self.expect_registration();
        self.node.restart().await.map_err(|error| chain(&error))?;
        self.log.add_line("volume_manager_start", json!({ "resumed": true }));
        self.log.node_was_started_again(self.time.now());
        match after {
            0 => {
                let answer = self.registered().await;
                self.log_registration(answer).map_err(|error| vec![format!("{error:#}")])?;
            }
            _ => self.announce_at = Some(self.time.now() + Duration::from_millis(after)),
        }
        Ok(())
    }

    /// Takes objects away while the node is down. Those that went before are gone as well.
    fn drop_objects(&mut self, pods: &[String], volumes: &[String]) -> Result<(), Vec<String>> {
        for name in pods {
            self.pods.remove(name);
            match self.api_server.delete::<Pod>(NAMESPACE, name) {
                Err(error) if !error.is_not_found() => return Err(chain(&error)),
                _ => {}
            }
        }
        volumes.iter().try_for_each(|name| self.drop_volume(name))
    }

    /// Deletes the objects of a volume in spite of their finalizers.
    fn drop_volume(&mut self, name: &str) -> Result<(), Vec<String>> {
        let failed = |error: api::ApiError| chain(&error);
        if self.api_server.get::<Claim>(NAMESPACE, name).is_some() {
            let unprotected = |claim: &mut Claim| claim.meta.finalizers.clear();
            self.api_server.change(NAMESPACE, name, unprotected).map_err(failed)?;
            self.api_server.delete::<Claim>(NAMESPACE, name).map_err(failed)?;
        }
        let volume = format!("pv-{name}");
        if self.api_server.get::<Volume>("", &volume).is_some() {
            let unprotected = |volume: &mut Volume| volume.meta.finalizers.clear();
            self.api_server.change("", &volume, unprotected).map_err(failed)?;
            self.api_server.delete::<Volume>("", &volume).map_err(failed)?;
        }
        Ok(())
    }

    async fn stop_driver(&mut self) {
        if self.has_driver() {
            self.kill_driver().await;
            self.log.add_line("driver_stopped", json!({ "kill": true }));
        }
    }

    async fn resume_driver(&mut self) -> Result<(), Vec<String>> {
        if self.has_driver() {
            self.start_driver_unannounced().await.map_err(|error| chain(&error))?;
            self.log.add_line("driver_started", json!({ "args": null }));
        }
        Ok(())
    }

    async fn expand(&mut self, step: &Step) -> Result<(), Vec<String>> {
        let (volume, size) = (step.volume.as_deref().unwrap_or_default(), step.size_mi.unwrap_or_default());
        let grown = self.api_server.grow(volume, size << 20).await;
        let error = grown.as_ref().err().map_or_else(|| "<nil>".to_owned(), |error| chain(error).join(": "));
        self.log.add_line("controller_expand", json!({ "err": error, "volume": volume }));
        grown.map_err(|error| chain(&error))
    }

    fn update_config_map(&mut self, step: &Step) -> Result<(), Vec<String>> {
        let (name, value) = (step.label.as_deref().unwrap_or_default(), step.cmd.clone().unwrap_or_default());
        let written = |map: &mut ConfigMap| drop(map.data.insert("k".to_owned(), value));
        self.api_server.change(NAMESPACE, name, written).map(drop).map_err(|error| chain(&error))
    }

    async fn sh(&mut self, cmd: &str) -> Result<(), Vec<String>> {
        self.journal.touched_by_hand();
        let output = tokio::process::Command::new("sh")
            .args(["-c", cmd])
            .current_dir(self.layout.state())
            .env("KL", self.layout.root())
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let mut output = std::pin::pin!(output);
        let ended = match tokio::time::timeout(AT_ONCE, &mut output).await {
            Ok(ended) => Ok(ended),
            // The command takes time after all, so the clock of the world advances too.
            Err(_) => {
                self.go_on().await;
                tokio::time::timeout(LIMIT, output).await
            }
        };
        let ended =
            ended.map_err(|_| vec![format!("the command did not end within {} s", LIMIT.as_secs())])?;
        let output = ended.map_err(|error| vec!["cannot start `sh`".to_owned(), error.to_string()])?;
        let mut out = String::from_utf8_lossy(&output.stdout).into_owned();
        out += &String::from_utf8_lossy(&output.stderr);
        let error = match output.status.success() {
            true => "<nil>".to_owned(),
            false => output.status.to_string(),
        };
        self.log.add_line("sh", json!({ "cmd": cmd, "err": error, "out": out }));
        match output.status.success() {
            true => Ok(()),
            false => Err(vec![error, out.trim_end().to_owned()]),
        }
    }

    /// Writes down the last look and the end. Returns the trace.
    pub(super) async fn finish(&mut self) -> String {
        self.snapshot("final").await;
        self.log.add_line("done", json!({}));
        self.log.text()
    }

    /// Takes down whatever is still there, the way it would be in a api. Says what would not go.
    pub(super) async fn take_down(&mut self) -> Vec<String> {
        let mut left = Vec::new();
        if let Some(proxy) = self.try_proxy() {
            proxy.clear("");
        }
        if self.driver_is_killed()
            && let Err(chain) = self.resume_driver().await
        {
            left.push(format!("the driver does not start again: {}", chain.join(": ")));
        }
        if !self.node.is_running()
            && let Err(error) = self.node.restart().await
        {
            left.push(format!("the node does not start again: {}", chain(&error).join(": ")));
        }
        for pod in std::mem::take(&mut self.pods) {
            if self.node.remove_pod(&pod, false).await.is_ok() {
                self.leaving.push((pod, self.time.now()));
            }
        }
        let gone = async |world: &mut Self| {
            let idle = world.leaving.is_empty() && world.is_quiet().await;
            let rest = world.node.dump().await.is_ok_and(|dump| dump.actual.is_empty());
            (idle && rest).then_some(())
        };
        // A call that hangs is over when its caller has had enough.
        if self.pass(2 * LIMIT, gone).await.is_none() {
            left.extend(self.state().await);
        }
        left.extend(self.other_is_empty().await);
        for volume in std::mem::take(&mut self.volumes) {
            // The volume's objects may be gone; then the end of the sandbox removes the driver's volume.
            drop(self.provisioner.delete(&volume).await);
        }
        left.extend(self.claims_leave().await);
        // With a short limit: a user waits at the terminal, and not every driver ends on SIGTERM.
        if let Some(other) = self.other_node() {
            other.end(ENDING).await;
        }
        self.end(ENDING).await;
        left.extend(self.clean_up().await.err().map(|error| error.to_string()));
        left
    }
}

/// The time for the driver to end after SIGTERM.
const ENDING: Duration = Duration::from_secs(5);

fn pod(step: &Step) -> &str {
    step.pod.as_deref().unwrap_or_default()
}

/// Everything that is known of a node.
async fn state_of(node: &Node, journal: &Journal) -> Vec<String> {
    let symbols = journal.symbols();
    let mut lines = Vec::new();
    if let Ok(dump) = node.dump().await {
        let texts = |what: &'static str, states: std::collections::BTreeMap<String, String>| {
            states.into_iter().map(move |(key, state)| format!("{what:<9} {key}: {state}"))
        };
        lines.extend(texts("actual", dump.actual));
        lines.extend(texts("desired", dump.desired));
        lines.extend(dump.running.iter().map(|operation| format!("running   {operation}")));
        lines.extend(dump.waiting.iter().map(|waiting| {
            let (failures, due) = (waiting.failures, waiting.due_in_ms);
            format!("waiting   {}, failed {failures} times, again in {due} ms", waiting.operation)
        }));
        lines.extend(
            dump.errors.iter().flat_map(|(pod, errors)| {
                errors.iter().map(move |error| format!("error     {pod}: {error}"))
            }),
        );
        lines.extend(texts("unknown", dump.unexplained));
    }
    lines.extend(journal.in_flight().into_iter().map(|call| format!("call      {call}")));
    lines.iter().map(|line| symbols.golden(line)).collect()
}
