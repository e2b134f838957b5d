//! The calls and mounts of each volume, in their order.
//!
//! A mount comes after the call during which it appeared at the call's target. Repeated calls with the same error are one
//! line.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

use super::read::{Line, Trace};
use super::section::Section;
use super::words;

/// The section of calls without a volume.
const NODE: &str = "the node's calls";

/// The stories of all volumes.
pub(super) fn sections(trace: &Trace) -> Vec<Section> {
    let mut stories = Stories::of(trace);
    trace.lines().iter().for_each(|line| stories.take(line));
    let named = |(volume, story): (String, Vec<Deed>)| {
        let about = if volume == NODE { volume } else { format!("calls and mounts of {volume}") };
        Section::new(about, in_order(folded(story)).into_iter().flat_map(Deed::lines).collect())
    };
    stories.volumes.into_iter().map(named).filter(|section| !section.lines.is_empty()).collect()
}

#[derive(Default)]
struct Stories {
    volumes: BTreeMap<String, Vec<Deed>>,
    /// The volume that is published at a target.
    targets: BTreeMap<String, String>,
    /// The section and the line of each unfinished call.
    open: BTreeMap<u64, (String, usize)>,
}

/// A call with the mounts that came and went at its target meanwhile, or a mount that belongs to no call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Deed {
    line: String,
    mounts: Vec<Change>,
    method: String,
    target: String,
    code: String,
    is_open: bool,
}

/// A change of the mount table.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Change {
    Mounted { target: String, description: String, opts: String },
    Gone(String),
    Changed { target: String, opts: String },
}

impl Stories {
    fn of(trace: &Trace) -> Self {
        let mut targets = BTreeMap::new();
        for line in trace.lines().iter().filter(|line| line.text("method") == "NodePublishVolume") {
            let field = |key: &str| line.get("req").get(key).and_then(Value::as_str).map(str::to_owned);
            targets.extend(field("targetPath").zip(field("volumeId")));
        }
        let targets = targets.into_iter().map(|(path, id)| (path, of_id(&id))).collect();
        Self { targets, ..Self::default() }
    }

    fn take(&mut self, line: &Line) {
        let target = || line.text("target").to_owned();
        match line.ev.as_str() {
            "rpc_start" => self.start(line),
            "rpc_end" => self.end(line),
            "mount_add" => {
                let (shown, fstype, supers) = (line.text("root"), line.text("fstype"), line.text("super"));
                let description = words::mount(shown, fstype, supers);
                self.change(Change::Mounted {
                    target: target(),
                    description,
                    opts: words::options(line.text("opts")),
                });
            }
            "mount_chg" => {
                self.change(Change::Changed { target: target(), opts: words::options(line.text("opts")) });
            }
            "mount_del" => self.change(Change::Gone(target())),
            _ => {}
        }
    }

    fn start(&mut self, line: &Line) {
        let method = line.text("method");
        // The number of these read-only calls depends on the caller.
        if method == "NodeGetCapabilities" || method == "NodeGetVolumeStats" {
            return;
        }
        let request = line.get("req");
        let text = |key: &str| request.get(key).and_then(Value::as_str);
        let volume = text("volumeId").map_or_else(|| NODE.to_owned(), of_id);
        let deed = Deed {
            line: format!("{method} {}", words::request(request)).trim_end().to_owned(),
            method: method.to_owned(),
            target: text("targetPath").unwrap_or_default().to_owned(),
            is_open: true,
            ..Deed::default()
        };
        let story = self.volumes.entry(volume.clone()).or_default();
        story.push(deed);
        self.open.insert(line.get("id").as_u64().unwrap_or_default(), (volume, story.len() - 1));
    }

    fn end(&mut self, line: &Line) {
        let id = line.get("id").as_u64().unwrap_or_default();
        let Some((volume, at)) = self.open.remove(&id) else { return };
        if let Some(deed) = self.volumes.get_mut(&volume).and_then(|story| story.get_mut(at)) {
            deed.code = words::code(line.text("code"), line.text("injected"));
            deed.is_open = false;
        }
    }

    /// Tells a change with the call for its target, and if there is none, with the changes before it.
    fn change(&mut self, change: Change) {
        let story = self.volumes.entry(self.at(change.target())).or_default();
        let of_call = |deed: &Deed| deed.is_open && deed.target == change.target();
        let at = story.iter().rposition(of_call);
        let at = at.or_else(|| story.len().checked_sub(1).filter(|last| story[*last].method.is_empty()));
        let deed = match at {
            Some(at) => &mut story[at],
            None => {
                story.push(Deed::default());
                story.last_mut().expect("it was just pushed")
            }
        };
        match (deed.mounts.last_mut(), &change) {
            // A mount may get its options in any number of steps.
            (Some(Change::Mounted { target, opts, .. }), Change::Changed { target: changed, opts: new })
                if target == changed =>
            {
                opts.clone_from(new);
            }
            _ => deed.mounts.push(change),
        }
    }

    /// The volume whose mount is at a path.
    fn at(&self, target: &str) -> String {
        if let Some(volume) = self.targets.get(target) {
            return volume.clone();
        }
        let parts: Vec<&str> = target.split('/').collect();
        match parts.as_slice() {
            [.., "kubernetes.io~csi", inner, "mount"]
            | [.., "volumeDevices", "publish", inner, _]
            | [.., "volumeDevices", inner, "dev", _] => {
                format!("volume {}", inner.strip_prefix("pv-").unwrap_or(inner))
            }
            [.., "pods", pod, "volumes", _, inner] => format!("volume {inner} of {pod}"),
            _ => format!("`{target}`"),
        }
    }
}

impl Deed {
    fn lines(self) -> Vec<String> {
        let ended = if self.code.is_empty() { String::new() } else { format!(" -> {}", self.code) };
        let call = (!self.method.is_empty()).then(|| format!("{}{ended}", self.line));
        call.into_iter().chain(self.mounts.iter().map(|change| format!("  {change}"))).collect()
    }
}

impl Change {
    fn target(&self) -> &str {
        match self {
            Self::Mounted { target, .. } | Self::Changed { target, .. } | Self::Gone(target) => target,
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mounted { target, description, opts } => write!(f, "mount  {target} {description} {opts}"),
            Self::Gone(target) => write!(f, "umount {target}"),
            Self::Changed { target, opts } => write!(f, "change {target} {opts}"),
        }
    }
}

/// The name of a volume by its id.
fn of_id(id: &str) -> String {
    format!("volume {}", id.strip_prefix("$VOLID_").unwrap_or(id))
}

/// The story without repetitions of a call with the same error. A repetition need not make the mounts of the first call
/// again, so its mounts are left out too.
fn folded(story: Vec<Deed>) -> Vec<Deed> {
    let mut folded: Vec<Deed> = Vec::new();
    for deed in story {
        let again =
            |before: &&mut Deed| before.line == deed.line && before.code == deed.code && deed.has_failed();
        match folded.last_mut().filter(|before| !before.method.is_empty()).filter(again) {
            Some(before) => before.mounts.extend(deed.mounts),
            None => folded.push(deed),
        }
    }
    folded
}

impl Deed {
    fn has_failed(&self) -> bool {
        !matches!(self.code.as_str(), "" | "OK")
    }
}

/// Puts calls that take a volume from several pods, one directly after the other, in the order of their paths:
/// they run side by side.
fn in_order(mut story: Vec<Deed>) -> Vec<Deed> {
    let leaves = |deed: &Deed| deed.method == "NodeUnpublishVolume" && !deed.has_failed();
    for run in story.chunk_by_mut(|one, next| leaves(one) && leaves(next)) {
        run.sort_by(|one, other| one.target.cmp(&other.target));
    }
    story
}
