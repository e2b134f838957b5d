//! What lay at and beside the path of a call when it reached the driver, against what lies there when it was answered;
//! and which loop devices and processes appeared meanwhile.
//!
//! Reads the directory of the path and nothing at the path itself, which may be a mount that does not answer. What
//! other processes may have done meanwhile is not held against the driver.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use contracts::event::{Event, Touch, Touched, TraceLine};
use rustix::fs::FileType;
use serde_json::Value;

use super::things::Things;
use crate::listing::{Listed, list};

/// The node's record of a volume: the one file beside the path of a call whose content is looked at.
const RECORD: &str = "vol_data.json";

/// A look around a call's path.
#[derive(Debug)]
pub(super) struct Around {
    path: PathBuf,
    /// The number of lines before the call.
    lines: usize,
    others: Others,
    entries: BTreeMap<OsString, Entry>,
    /// The directories above the path, up to the node's root, that were no links.
    above: Vec<PathBuf>,
    /// The existing ones among them.
    directories: Vec<PathBuf>,
    things: Things,
}

/// What a call is, as far as it matters to what lies at its path afterwards.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) method: &'a str,
    /// Whether it publishes a raw device.
    pub(super) is_block: bool,
}

impl<'a> Asked<'a> {
    pub(super) fn of(method: &'a str, req: &Value) -> Self {
        let is_block = method == "NodePublishVolume" && req["volumeCapability"]["block"].is_object();
        Self { method, is_block }
    }
}

/// Calls that were under way when a look was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Others {
    None,
    /// Others are published, all at other paths.
    Elsewhere,
    /// Also at this path.
    Here,
}

/// What a directory says of an entry, and for a record what the file says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    kind: FileType,
    inode: u64,
    written: Option<(u64, i64, i64)>,
}

/// The call during which something appeared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Appeared {
    /// The bare method name.
    pub method: String,
    /// The volume, by the name that stories give it.
    pub volume: String,
}

impl Around {
    /// The number of lines before the call.
    pub(super) fn lines(&self) -> usize {
        self.lines
    }

    pub(super) fn look(path: &Path, root: &Path, lines: usize, others: Others, things: Things) -> Self {
        let entries = path.parent().map(entries).unwrap_or_default();
        let above = path.ancestors().skip(1).take_while(|above| above.starts_with(root) && *above != root);
        let (mut no_links, mut directories) = (Vec::new(), Vec::new());
        for above in above {
            let found = fs::symlink_metadata(above);
            if !found.as_ref().is_ok_and(|found| found.is_symlink()) {
                no_links.push(above.to_owned());
                directories.extend(found.is_ok().then(|| above.to_owned()));
            }
        }
        Self { path: path.to_owned(), lines, others, entries, above: no_links, directories, things }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The kind of file at the path that this call must not meet; `None` if it fits.
    pub(super) fn in_the_way(&self, method: &str, is_block: bool) -> Option<&'static str> {
        let kind = self.entries.get(self.path.file_name()?)?.kind;
        let is_wrong = match method {
            "NodeStageVolume" => !kind.is_dir(),
            "NodePublishVolume" => kind.is_dir() == is_block,
            _ => false,
        };
        let word = match () {
            () if kind.is_dir() => "a directory",
            () if kind.is_symlink() => "a link",
            () if kind.is_file() => "a file",
            () => "a special file",
        };
        is_wrong.then_some(word)
    }

    /// The paths at and beside the call's that were not there before, but for those that the node has announced.
    /// `trace` begins with the call.
    pub(super) fn new_entries(&self, trace: &[TraceLine]) -> Vec<PathBuf> {
        let meanwhile: Vec<&TraceLine> = trace.iter().collect();
        let Some(parent) = self.path.parent().filter(|_| self.others != Others::Here) else {
            return Vec::new();
        };
        let new = entries(parent).into_keys().filter(|name| !self.entries.contains_key(name));
        new.map(|name| parent.join(name)).filter(|path| !is_announced(&meanwhile, path)).collect()
    }

    /// What became of the paths, by the time of the answer of call `id`. `made` holds the targets that drivers have
    /// made; `is_mounted` says whether anything is mounted at the path.
    pub(super) fn touched(
        &self,
        id: u64,
        Asked { method, is_block }: Asked<'_>,
        is_ok: bool,
        trace: &[TraceLine],
        made: &mut BTreeSet<PathBuf>,
        is_mounted: bool,
    ) -> Vec<Touched> {
        // The look is taken before the start of its own call is a line.
        let is_own = |line: &&TraceLine| matches!(&line.event, Event::RpcStart(start) if start.id == id);
        let meanwhile: Vec<&TraceLine> = trace.iter().filter(|line| !is_own(line)).collect();
        // A case may break what it likes, and a node that dies announces nothing any more.
        if meanwhile.iter().any(|line| {
            matches!(line.event, Event::Case(_) | Event::Pod(_) | Event::Disturbed(_) | Event::Process(_))
        }) {
            return Vec::new();
        }
        let (Some(parent), Some(own)) = (self.path.parent(), self.path.file_name()) else {
            return Vec::new();
        };
        // Files behind a link are not the node's, so they are not judged.
        let linked =
            self.above.iter().rev().find(|above| is_link_at(above) && !is_announced(&meanwhile, above));
        if let Some(linked) = linked {
            let path = linked.to_string_lossy().into_owned();
            return vec![Touched { method: method.to_owned(), id, path, how: Touch::Linked, named: false }];
        }
        let alone = self.others == Others::None
            && !meanwhile.iter().any(|line| matches!(line.event, Event::RpcStart(_) | Event::RpcEnd(_)));
        let is_gone = |above: &&PathBuf| !above.exists() && !is_announced(&meanwhile, above);
        if alone && let Some(gone) = self.directories.iter().rev().find(is_gone) {
            made.remove(&self.path);
            let path = gone.to_string_lossy().into_owned();
            return vec![Touched { method: method.to_owned(), id, path, how: Touch::Removed, named: false }];
        }
        let now = entries(parent);
        // Only calls that name the path touch the file at it.
        let alone_here = self.others != Others::Here && !meanwhile.iter().any(|line| self.is_named_by(line));
        let mut found = Vec::new();
        let mut add = |path: PathBuf, how, named| {
            let path = path.to_string_lossy().into_owned();
            found.push(Touched { method: method.to_owned(), id, path, how, named });
        };
        for (name, before) in self.entries.iter().filter(|(name, _)| *name != own) {
            let path = parent.join(name);
            if (alone || name == RECORD) && !is_announced(&meanwhile, &path) {
                change(before, now.get(name)).into_iter().for_each(|how| add(path.clone(), how, false));
            }
        }
        let (before, after) = (self.entries.get(own), now.get(own));
        let is_a_device = after.is_some_and(|after| after.kind.is_block_device());
        if is_block && is_ok && alone_here && !is_mounted && !is_a_device && !is_link(after) {
            add(self.path.clone(), Touch::NoDevice, true);
        }
        match method {
            "NodePublishVolume" if before.is_none() && after.is_some() => _ = made.insert(self.path.clone()),
            "NodeUnpublishVolume" if after.is_none() => _ = made.remove(&self.path),
            "NodeUnpublishVolume" if is_ok && alone_here && !is_mounted && made.contains(&self.path) => {
                add(self.path.clone(), Touch::Kept, true);
            }
            "NodeUnstageVolume" if is_ok && alone_here && before.is_some() && after.is_none() => {
                add(self.path.clone(), Touch::Removed, true);
            }
            _ => {}
        }
        if alone_here && is_link(after) && !is_link(before) {
            add(self.path.clone(), Touch::Linked, true);
        }
        found
    }

    fn is_named_by(&self, line: &TraceLine) -> bool {
        let Event::RpcStart(start) = &line.event else { return false };
        let path = |field: &str| start.req.get(field).and_then(serde_json::Value::as_str);
        [path("targetPath"), path("stagingTargetPath")]
            .into_iter()
            .flatten()
            .any(|named| self.path == Path::new(named))
    }

    /// The loop devices and processes that were there.
    pub(super) fn things(&self) -> &Things {
        &self.things
    }
}

/// Asks the directory that is the node's own, and nothing at the path of a call.
fn is_link_at(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink())
}

fn is_link(entry: Option<&Entry>) -> bool {
    entry.is_some_and(|entry| entry.kind.is_symlink())
}

fn change(before: &Entry, after: Option<&Entry>) -> Option<Touch> {
    match after {
        None => Some(Touch::Removed),
        Some(_) if is_link(after) && !is_link(Some(before)) => Some(Touch::Linked),
        Some(after) if (after.kind, after.inode) != (before.kind, before.inode) => Some(Touch::Replaced),
        Some(after) if after.written != before.written => Some(Touch::Written),
        Some(_) => None,
    }
}

/// Whether the node has said that it did something to a path.
fn is_announced(meanwhile: &[&TraceLine], path: &Path) -> bool {
    meanwhile.iter().any(|line| match &line.event {
        Event::Effect(effect) => {
            let to = effect.fields.get("to").is_some_and(|to| Path::new(to) == path);
            to || path.starts_with(&effect.path)
        }
        _ => false,
    })
}

fn entries(directory: &Path) -> BTreeMap<OsString, Entry> {
    let entry = |Listed { name, kind, inode }| {
        let is_record = name == RECORD && kind.is_file();
        let stat = is_record.then(|| fs::symlink_metadata(directory.join(&name)).ok()).flatten();
        let written = stat.map(|stat| (stat.size(), stat.mtime(), stat.mtime_nsec()));
        (name, Entry { kind, inode, written })
    };
    list(directory).into_iter().map(entry).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    struct Ground {
        pv: PathBuf,
        /// Removed at the end.
        _above: tempfile::TempDir,
    }

    impl Ground {
        fn new() -> Self {
            let above = tempfile::tempdir().unwrap();
            let ground = Self { pv: above.path().join("pv"), _above: above };
            fs::create_dir(&ground.pv).unwrap();
            fs::write(ground.record(), "{}").unwrap();
            ground
        }

        fn target(&self) -> PathBuf {
            self.pv.join("mount")
        }

        /// The directory above that of the target.
        fn root(&self) -> &Path {
            self.pv.parent().unwrap()
        }

        fn record(&self) -> PathBuf {
            self.pv.join(RECORD)
        }

        /// The lines about a call during which `act` was done.
        fn during(
            &self,
            method: &str,
            made: &mut BTreeSet<PathBuf>,
            act: impl FnOnce(),
        ) -> Vec<(Touch, bool)> {
            let around = Around::look(&self.target(), self.root(), 0, Others::None, Things::now(None));
            act();
            self.touched(&around, method, serde_json::json!({ "targetPath": self.target() }), made)
        }

        fn touched(
            &self,
            around: &Around,
            method: &str,
            req: Value,
            made: &mut BTreeSet<PathBuf>,
        ) -> Vec<(Touch, bool)> {
            let asked = Asked::of(method, &req);
            let start = contracts::event::RpcStart {
                id: 1,
                method: method.to_owned(),
                req: req.clone(),
                deadline_s: None,
            };
            let own = [TraceLine { seq: 1, t_ms: 0.0, event: Event::RpcStart(start) }];
            let found = around.touched(1, asked, true, &own, made, false);
            found.into_iter().map(|touched| (touched.how, touched.named)).collect()
        }
    }

    fn plain(method: &str) -> Asked<'_> {
        Asked { method, is_block: false }
    }

    #[test]
    fn target_of_a_raw_device_is_a_device() {
        let ground = Ground::new();
        let publish = |act: &dyn Fn()| {
            let around = Around::look(&ground.target(), ground.root(), 0, Others::None, Things::now(None));
            act();
            let block =
                serde_json::json!({ "targetPath": ground.target(), "volumeCapability": { "block": {} } });
            ground.touched(&around, "NodePublishVolume", block, &mut BTreeSet::new())
        };
        let no_device = [(Touch::NoDevice, true)];
        assert_eq!(publish(&|| {}), no_device, "nothing is there");
        assert_eq!(publish(&|| fs::write(ground.target(), "").unwrap()), no_device);
        fs::remove_file(ground.target()).unwrap();
        assert_eq!(publish(&|| fs::create_dir(ground.target()).unwrap()), no_device);
        fs::remove_dir(ground.target()).unwrap();
        symlink("/dev/loop0", ground.target()).unwrap();
        assert_eq!(publish(&|| {}), [], "a link may lead to the device");
    }

    #[test]
    fn directory_above_the_target_that_becomes_a_link_is_reported_alone() {
        let mut made = BTreeSet::new();
        let ground = Ground::new();
        let aside = ground.root().join("aside");
        let link = || {
            fs::rename(&ground.pv, &aside).unwrap();
            symlink("/etc", &ground.pv).unwrap();
        };
        assert_eq!(ground.during("NodePublishVolume", &mut made, link), [(Touch::Linked, false)]);
        fs::remove_file(&ground.pv).unwrap();
        fs::rename(&aside, &ground.pv).unwrap();
        assert_eq!(ground.during("NodePublishVolume", &mut made, || {}), []);
    }

    #[test]
    fn wrong_kind_at_the_target_is_in_the_way() {
        let ground = Ground::new();
        let look = || Around::look(&ground.target(), ground.root(), 0, Others::None, Things::now(None));
        let publish = "NodePublishVolume";
        assert_eq!(look().in_the_way(publish, false), None);
        fs::write(ground.target(), "").unwrap();
        assert_eq!(look().in_the_way(publish, false), Some("a file"));
        assert_eq!(look().in_the_way("NodeStageVolume", false), Some("a file"));
        assert_eq!(look().in_the_way(publish, true), None, "a device is bound over a file");
        fs::remove_file(ground.target()).unwrap();
        fs::create_dir(ground.target()).unwrap();
        assert_eq!(look().in_the_way(publish, true), Some("a directory"));
        assert_eq!(look().in_the_way(publish, false), None);
    }

    #[test]
    fn record_beside_the_target_is_watched() {
        let mut made = BTreeSet::new();
        let ground = Ground::new();
        assert_eq!(ground.during("NodePublishVolume", &mut made, || {}), []);
        let write = || fs::write(ground.record(), "{\"a\":1}").unwrap();
        assert_eq!(ground.during("NodeStageVolume", &mut made, write), [(Touch::Written, false)]);
        let link = || {
            fs::remove_file(ground.record()).unwrap();
            symlink("/etc/passwd", ground.record()).unwrap();
        };
        assert_eq!(ground.during("NodePublishVolume", &mut made, link), [(Touch::Linked, false)]);
        let remove = || fs::remove_file(ground.record()).unwrap();
        assert_eq!(ground.during("NodeUnpublishVolume", &mut made, remove), [(Touch::Removed, false)]);
    }

    #[test]
    fn target_that_the_driver_made_has_to_go() {
        let mut made = BTreeSet::new();
        let ground = Ground::new();
        let make = || fs::create_dir(ground.target()).unwrap();
        assert_eq!(ground.during("NodePublishVolume", &mut made, make), []);
        assert_eq!(ground.during("NodeUnpublishVolume", &mut made, || {}), [(Touch::Kept, true)]);
        let remove = || fs::remove_dir(ground.target()).unwrap();
        assert_eq!(ground.during("NodeUnpublishVolume", &mut made, remove), []);
        // One that was there before the call is the caller's.
        fs::create_dir(ground.target()).unwrap();
        assert_eq!(ground.during("NodePublishVolume", &mut made, || {}), []);
        assert_eq!(ground.during("NodeUnpublishVolume", &mut made, || {}), []);
        let link = || {
            fs::remove_dir(ground.target()).unwrap();
            symlink("/etc", ground.target()).unwrap();
        };
        assert_eq!(ground.during("NodePublishVolume", &mut made, link), [(Touch::Linked, true)]);
    }

    #[test]
    fn directory_of_the_target_is_the_nodes() {
        let ground = Ground::new();
        let mut made = BTreeSet::from([ground.target()]);
        let remove = || fs::remove_dir_all(&ground.pv).unwrap();
        assert_eq!(ground.during("NodeUnpublishVolume", &mut made, remove), [(Touch::Removed, false)]);
        // It was not there before the next call.
        assert_eq!(ground.during("NodeUnpublishVolume", &mut made, || {}), []);
    }

    #[test]
    fn staging_directory_is_the_nodes() {
        let mut made = BTreeSet::new();
        let ground = Ground::new();
        fs::create_dir(ground.target()).unwrap();
        let remove = || fs::remove_dir(ground.target()).unwrap();
        assert_eq!(ground.during("NodeUnstageVolume", &mut made, remove), [(Touch::Removed, true)]);
    }

    #[test]
    fn change_by_the_node_or_a_case_is_not_the_drivers() {
        let ground = Ground::new();
        let around = Around::look(&ground.target(), ground.root(), 0, Others::None, Things::now(None));
        fs::remove_file(ground.record()).unwrap();
        let effect = contracts::event::Effect {
            effect: contracts::event::EffectKind::Remove,
            path: ground.record().to_string_lossy().into_owned(),
            source: None,
            fields: BTreeMap::new(),
            confirmed: true,
        };
        let step = contracts::event::Step { action: "damage".into(), on: String::new(), at: None };
        for event in [Event::Effect(effect), Event::Case(step)] {
            let trace = [TraceLine { seq: 1, t_ms: 0.0, event }];
            let found =
                around.touched(1, plain("NodePublishVolume"), true, &trace, &mut BTreeSet::new(), false);
            assert_eq!(found, []);
        }
    }

    #[test]
    fn call_at_another_path_does_not_excuse_the_driver() {
        let ground = Ground::new();
        fs::create_dir(ground.target()).unwrap();
        let mut made = BTreeSet::from([ground.target()]);
        let mut kept = |others, path: &Path| {
            let around = Around::look(&ground.target(), ground.root(), 0, others, Things::now(None));
            let req = serde_json::json!({ "targetPath": path });
            let start = contracts::event::RpcStart {
                id: 2,
                method: "NodePublishVolume".into(),
                req,
                deadline_s: None,
            };
            let trace = [TraceLine { seq: 1, t_ms: 0.0, event: Event::RpcStart(start) }];
            !around.touched(1, plain("NodeUnpublishVolume"), true, &trace, &mut made, false).is_empty()
        };
        assert!(kept(Others::Elsewhere, Path::new("/elsewhere")));
        assert!(!kept(Others::Elsewhere, &ground.target()));
        assert!(!kept(Others::Here, Path::new("/elsewhere")));
    }
}
