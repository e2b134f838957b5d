//! Writes the trace of a played scenario in the format of the recordings: the journal's lines, and between them the
//! player's own lines for the scenario, its steps and its restarts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use contracts::event::{
    ApiChange, Awaited, Client, Effect, EffectKind, Event, ObjectKind, RpcEnd, StateChange, TraceLine, Verb,
    WaitReturned, World,
};
use harness::Layout;
use harness::journal::Journal;
use harness::observe;
use serde_json::{Map, Value, json};

use super::scenario::{Scenario, Step};

/// The player notes a kill after the node is dead: the ends of the node's calls may be this many lines earlier.
const LINES_BEFORE_KILL: usize = 8;

/// Collects the player's lines. Notes when pods were added and removed and when the node was killed, to complete the
/// journal's lines.
#[derive(Debug)]
pub(super) struct Log {
    journal: Journal,
    /// The mounts of the run's directories.
    directories: Vec<observe::Mount>,
    lines: Vec<PlayerLine>,
    /// When each pod was added, or its node started again.
    added: BTreeMap<String, Duration>,
    removed: BTreeMap<String, Duration>,
    /// The numbers of journal lines at which the node was killed. A recording has no end for a call that a kill ended, and
    /// marks each later wait as `resumed`.
    kills: Vec<usize>,
    root: String,
    began: std::time::Instant,
}

#[derive(Debug)]
struct PlayerLine {
    /// The number of the journal's lines before it.
    after: usize,
    t_ms: f64,
    line: Map<String, Value>,
}

impl Log {
    pub(super) fn new(journal: Journal, layout: &Layout) -> Self {
        // Without the table of mounts, roots stay as the kernel names them.
        let mut directories = observe::snapshot().unwrap_or_default();
        directories.retain(|mount| [layout.state(), layout.root()].contains(&mount.target.as_path()));
        Self {
            journal,
            directories,
            lines: Vec::new(),
            added: BTreeMap::new(),
            removed: BTreeMap::new(),
            kills: Vec::new(),
            root: layout.root().display().to_string(),
            began: std::time::Instant::now(),
        }
    }

    /// Adds a line of the player after the journal's last line.
    pub(super) fn add_line(&mut self, ev: &str, fields: Value) {
        let (after, t_ms) = self.journal.position();
        let mut line = Map::new();
        line.insert("ev".to_owned(), json!(ev));
        if let Value::Object(fields) = fields {
            line.extend(fields);
        }
        self.lines.push(PlayerLine { after, t_ms, line });
    }

    /// Writes the scenario at the start of the trace.
    pub(super) fn scenario(&mut self, scenario: &Scenario) {
        let head = json!({
            "desc": scenario.desc, "driver": scenario.driver, "name": scenario.name, "pid_ns": "own mount namespace",
        });
        self.add_line("scenario", head);
        for pod in &scenario.pods {
            let name = super::manifest::name(pod).to_owned();
            self.add_line("pod_manifest", json!({ "manifest": pod, "pod": name }));
        }
    }

    /// Writes a step as it begins.
    pub(super) fn step(&mut self, number: usize, step: &Step) {
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let line = json!({
            "do": step.action, "label": text(&step.label), "n": number, "pod": text(&step.pod),
            "rule": step.rule, "volume": text(&step.volume),
        });
        self.add_line("step", line);
    }

    pub(super) fn pod_added(&mut self, pod: &str, now: Duration) {
        self.added.insert(pod.to_owned(), now);
        self.removed.remove(pod);
    }

    pub(super) fn pod_removed(&mut self, pod: &str, now: Duration) {
        self.removed.insert(pod.to_owned(), now);
    }

    /// Records that the node was killed just now.
    pub(super) fn node_was_killed(&mut self) {
        self.kills.push(self.journal.position().0);
    }

    /// Records that the node was started again: the times of its pods count from now.
    pub(super) fn node_was_started_again(&mut self, now: Duration) {
        self.added.values_mut().for_each(|added| *added = now);
    }

    /// A mount in a snapshot, as one line.
    pub(super) fn mount_line(&self, mount: &observe::Mount) -> String {
        let root = self.resolved(&mount.root.to_string_lossy(), &mount.dev.to_string());
        let observe::Mount { target, fstype, source, opts, super_opts, .. } = mount;
        let target = target.display();
        format!("{target} <- {source} root={root} type={fstype} opts={opts} super={super_opts}")
    }

    /// The root of a mount: as a path, if it is in one of the run's directories, and as the kernel names it if not.
    fn resolved(&self, root: &str, device: &str) -> String {
        let below = |directory: &observe::Mount| {
            let is_there = directory.dev.to_string() == device;
            let below = Path::new(root).strip_prefix(&directory.root).ok().filter(|_| is_there)?;
            // Without a slash at its end where nothing is below.
            let path: PathBuf = directory.target.iter().chain(below.iter()).collect();
            Some(path.display().to_string())
        };
        self.directories.iter().find_map(below).unwrap_or_else(|| root.to_owned())
    }

    /// The whole trace: every line numbered, masked and in the symbols of the recordings.
    pub(super) fn text(&self) -> String {
        let mut players = self.lines.iter().peekable();
        let (mut text, mut seq) = (String::new(), 0u64);
        let mut push = |t_ms: f64, line: Map<String, Value>| {
            seq += 1;
            let mut whole = Map::new();
            whole.insert("seq".to_owned(), json!(seq));
            whole.insert("t_ms".to_owned(), json!((t_ms * 1e3).round() / 1e3));
            whole.extend(line);
            let mut whole = Value::Object(whole);
            self.journal.masks().hide_in_json(&mut whole);
            text += &symbolic(whole, &self.journal).to_string();
            text.push('\n');
        };
        let mut options = BTreeMap::new();
        for (index, line) in self.journal.trace().iter().enumerate() {
            while let Some(player) = players.next_if(|player| player.after <= index) {
                push(player.t_ms, player.line.clone());
            }
            for recorded in self.recorded(index, line, &mut options) {
                push(line.t_ms, recorded);
            }
        }
        for player in players {
            push(player.t_ms, player.line.clone());
        }
        text
    }

    /// The lines of a recording for a line of the journal: none, one, or more. `options` has the options of each mount,
    /// by target, from the lines before.
    fn recorded(
        &self,
        index: usize,
        line: &TraceLine,
        options: &mut BTreeMap<String, String>,
    ) -> Vec<Map<String, Value>> {
        match &line.event {
            Event::RpcStart(start) => {
                let mut fields = fields_of(line);
                fields.insert("req".to_owned(), start.req.clone());
                vec![fields]
            }
            Event::RpcEnd(end) => self.call_end(index, end).into_iter().collect(),
            Event::MountAdd(_) | Event::MountChg(_) | Event::MountDel(_) => {
                self.mount_change(&line.event, options).into_iter().collect()
            }
            Event::Case(_) | Event::Pod(_) | Event::Disturbed(_) => Vec::new(),
            // Recordings have no such lines.
            Event::DirectCall(_) | Event::Looked | Event::Recovered(_) => Vec::new(),
            Event::State(state) => vec![state_change(state)],
            Event::Wait(wait) => {
                let resumed = self.kills.iter().any(|kill| *kill <= index);
                self.wait_returned(line.t_ms, wait, resumed).into_iter().collect()
            }
            Event::Effect(effect) => kubelet_mount(effect).into_iter().chain([fields_of(line)]).collect(),
            Event::Api(change) => api_lines(change).into_iter().chain([fields_of(line)]).collect(),
            _ => vec![fields_of(line)],
        }
    }

    /// The line for a change of a mount below the node's root; none for other mounts.
    fn mount_change(
        &self,
        event: &Event,
        options: &mut BTreeMap<String, String>,
    ) -> Option<Map<String, Value>> {
        let fields = match event {
            Event::MountAdd(mount) if self.is_below_root(&mount.target) => {
                options.insert(mount.target.clone(), mount.opts.clone());
                json!({
                    "ev": "mount_add", "fstype": mount.fstype, "opts": mount.opts,
                    "root": self.resolved(&mount.root, &mount.dev), "seen_by": mount.seen_by,
                    "source": mount.source, "super": mount.super_opts, "target": mount.target,
                })
            }
            Event::MountChg(mount) if self.is_below_root(&mount.target) => {
                let was = options.insert(mount.target.clone(), mount.opts.clone()).unwrap_or_default();
                json!({
                    "ev": "mount_chg", "opts": mount.opts, "seen_by": mount.seen_by, "target": mount.target,
                    "was": was,
                })
            }
            Event::MountDel(gone) if self.is_below_root(&gone.target) => {
                options.remove(&gone.target);
                json!({ "ev": "mount_del", "seen_by": gone.seen_by, "target": gone.target })
            }
            _ => return None,
        };
        Some(object(fields))
    }

    fn is_below_root(&self, target: &str) -> bool {
        target.strip_prefix(&self.root).is_some_and(|below| below.starts_with('/'))
    }

    /// The end of a call; none if its caller was killed, since a recorder in the caller's process dies with it.
    fn call_end(&self, index: usize, end: &RpcEnd) -> Option<Map<String, Value>> {
        let is_lost =
            end.code == "Canceled" && self.kills.iter().any(|kill| index + LINES_BEFORE_KILL >= *kill);
        if is_lost && end.message == "the caller went away" {
            return None;
        }
        let mut fields = json!({
            "ev": "rpc_end", "code": end.code, "dur_ms": end.dur_ms, "id": end.id, "method": end.method,
        });
        match end.code.as_str() {
            "OK" => fields["resp"] = end.resp.clone(),
            _ => fields["msg"] = json!(end.message),
        }
        if let Some(injected) = &end.injected {
            fields["injected"] = json!(injected);
        }
        Some(object(fields))
    }

    fn wait_returned(&self, t_ms: f64, wait: &WaitReturned, resumed: bool) -> Option<Map<String, Value>> {
        let WaitReturned { what, pod, err } = wait;
        let since = |times: &BTreeMap<String, Duration>| {
            // The player's clock and the journal's differ by the time that the player skipped. The larger value is near
            // enough: no comparison of traces reads these fields.
            let now = self.began.elapsed().as_secs_f64() * 1e3;
            times.get(pod).map_or(0, |from| (t_ms.max(now) - from.as_secs_f64() * 1e3).max(0.0) as u64)
        };
        match what {
            Awaited::Mounted => Some(object(json!({
                "ev": "wait_mount_returned", "err": err, "pod": pod, "resumed": resumed,
                "since_added_ms": since(&self.added),
            }))),
            Awaited::Unmounted => Some(object(json!({
                "ev": "wait_unmount_returned", "err": err, "pod": pod, "since_removed_ms": since(&self.removed),
            }))),
            Awaited::Gone => None,
        }
    }
}

fn state_change(change: &StateChange) -> Map<String, Value> {
    let ev = match change.world {
        World::Desired => "dsw",
        World::Actual => "asw",
    };
    object(json!({ "ev": ev, "from": change.from, "key": change.key, "to": change.to }))
}

/// The `kubelet_mount` line of an effect: recordings have one for each unmount by the node, and for each tmpfs that it mounts.
fn kubelet_mount(effect: &Effect) -> Option<Map<String, Value>> {
    let field = |key: &str| effect.fields.get(key).cloned().unwrap_or_default();
    match effect.effect {
        EffectKind::Mount if field("fstype") == "tmpfs" => {
            let options = field("options");
            let options: Vec<&str> = options.split(',').filter(|option| !option.is_empty()).collect();
            Some(object(json!({
                "ev": "kubelet_mount", "fstype": "tmpfs", "op": "mount", "opts": options, "source": "tmpfs",
                "target": effect.path,
            })))
        }
        EffectKind::Umount => {
            Some(object(json!({ "ev": "kubelet_mount", "op": "umount", "target": effect.path })))
        }
        _ => None,
    }
}

/// The further lines that a recording has for a change of an API object, beside the change itself.
fn api_lines(change: &ApiChange) -> Vec<Map<String, Value>> {
    let status = |key: &str| change.body.pointer(&format!("/status/{key}")).cloned().unwrap_or_default();
    match (change.kind, change.verb, change.by) {
        (ObjectKind::Node, Verb::Patch, Client::Node) => {
            vec![object(json!({ "ev": "node_volumes_in_use", "volumes": status("volumesInUse") }))]
        }
        (ObjectKind::Node, Verb::Patch, _) => {
            vec![object(json!({ "ev": "node_volumes_attached", "volumes": status("volumesAttached") }))]
        }
        (ObjectKind::Attachment, Verb::Patch, _) if status("attached") == json!(true) => {
            vec![object(json!({ "ev": "adc_attached", "va": change.object }))]
        }
        (ObjectKind::Attachment, Verb::Delete, _) => {
            vec![object(json!({ "ev": "adc_detached", "va": change.object }))]
        }
        (_, Verb::Token, _) => {
            let account = change.body.get("account").and_then(Value::as_str).unwrap_or_default();
            let namespace = change.object.split('/').next().unwrap_or_default();
            let audiences = change.body.get("audiences").cloned().unwrap_or_default();
            vec![object(
                json!({ "ev": "sa_token", "audiences": audiences, "sa": format!("{namespace}/{account}") }),
            )]
        }
        _ => Vec::new(),
    }
}

/// The fields of a line, without its number and its time.
fn fields_of(line: &TraceLine) -> Map<String, Value> {
    let mut fields = object(serde_json::to_value(line).expect("a trace line is made of maps with text keys"));
    fields.remove("seq");
    fields.remove("t_ms");
    fields
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// Replaces the run's own paths and names in every text by the symbols of the recordings.
fn symbolic(value: Value, journal: &Journal) -> Value {
    match value {
        Value::String(text) => Value::String(journal.symbols().golden(&text)),
        Value::Array(items) => items.into_iter().map(|item| symbolic(item, journal)).collect(),
        Value::Object(map) => {
            let entries = map.into_iter();
            entries.map(|(key, value)| (journal.symbols().golden(&key), symbolic(value, journal))).collect()
        }
        other => other,
    }
}
