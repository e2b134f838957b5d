//! Watches a running node and driver: returns each line as it comes, and each broken promise.
//!
//! Calls about a volume that was on the node before are ignored, since its history is unknown. Reads the files in which a
//! node records its volumes; all other input is passed in.

mod findings;
mod metrics;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use contracts::event::{Event, Lifecycle, TraceLine};
use contracts::promise;
use contracts::rule::{Judge, Violation, Witness};
use contracts::{driver, manager, witnessed};
use serde_json::Value;

use crate::check::{Broken, Judgement};

pub(crate) use findings::Findings;
pub(crate) use metrics::{Address, Metrics};

/// The witnesses of a watch.
const WITNESSES: [Witness; 2] = [Witness::Rpc, Witness::Kernel];

/// The state of a watch.
pub(crate) struct Watched {
    root: PathBuf,
    judge: Judge,
    /// Handles of volumes that were there before.
    earlier: BTreeSet<String>,
    /// Calls about those that are under way.
    passed_over: BTreeSet<u64>,
    broken: Broken,
}

/// The volumes that are remembered after they have left the node.
const REMEMBERED: usize = 1000;

/// News for the user.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// A line about an event.
    Happened(String),
    /// By that a promise was broken.
    Broken(Violation),
}

impl News {
    /// The message of a failed call holds a secret that the driver was given.
    pub(crate) fn secret_repeated(method: &str, key: &str) -> Self {
        Self::Broken(Violation {
            contract: "DRV-094",
            method: method.to_owned(),
            cause: "the message of its error repeats a secret",
            detail: key.to_owned(),
            seq: 0,
        })
    }
}

impl Watched {
    /// Watches a node with its directory at `root`, where these volumes are already.
    pub(crate) fn new(root: PathBuf, earlier: BTreeSet<String>) -> Self {
        let rules = driver::RULES.iter().chain(witnessed::RULES).copied().chain(manager::all());
        let judge = Judge::new(rules, &WITNESSES);
        Self { root, judge, earlier, passed_over: BTreeSet::new(), broken: Broken::default() }
    }

    /// Takes the next line. Returns its news.
    pub(crate) fn take(&mut self, line: TraceLine) -> Vec<News> {
        if !self.concerns_us(&line.event) {
            return Vec::new();
        }
        let happened =
            self.describe(&line).map(|text| News::Happened(format!("{:9.3}s  {text}", line.t_ms / 1e3)));
        let broken = self.judge.event(&line);
        broken.iter().for_each(|violation| self.broken.add(violation));
        self.judge.forget_gone(REMEMBERED);
        happened.into_iter().chain(broken.into_iter().map(News::Broken)).collect()
    }

    /// The verdicts so far.
    pub(crate) fn judgement(&self) -> Judgement {
        Judgement::so_far(&self.judge, WITNESSES.into(), &self.broken)
    }

    /// Whether a line is about the node and the driver, and about a volume whose life was seen from its beginning.
    fn concerns_us(&mut self, event: &Event) -> bool {
        match event {
            Event::RpcStart(start) if self.earlier.contains(start.request().volume_id()) => {
                self.passed_over.insert(start.id);
                false
            }
            Event::RpcEnd(end) => !self.passed_over.remove(&end.id),
            Event::MountAdd(mount) | Event::MountChg(mount) => {
                Path::new(&mount.target).starts_with(&self.root)
            }
            Event::MountDel(gone) => Path::new(&gone.target).starts_with(&self.root),
            Event::Touched(_) => false,
            _ => true,
        }
    }

    fn describe(&self, line: &TraceLine) -> Option<String> {
        let below = |target: &str| {
            Path::new(target)
                .strip_prefix(&self.root)
                .map_or(target.to_owned(), |rest| rest.display().to_string())
        };
        Some(match &line.event {
            Event::RpcEnd(end) => {
                let volume =
                    self.judge.books().calls.get(&end.id).map(|call| call.volume()).unwrap_or_default();
                let words = [&end.method, volume, &end.code].into_iter().filter(|word| !word.is_empty());
                let why = if end.message.is_empty() { String::new() } else { format!(": {}", end.message) };
                format!("{}{why} ({:.0} ms)", words.collect::<Vec<_>>().join(" "), end.dur_ms)
            }
            Event::MountAdd(mount) => format!("mount {}", below(&mount.target)),
            Event::MountChg(mount) => format!("remount {} {}", below(&mount.target), mount.opts),
            Event::MountDel(gone) => format!("umount {}", below(&gone.target)),
            Event::Process(edge) if edge.edge == Lifecycle::Exit => {
                "the node is another process now".to_owned()
            }
            _ => return None,
        })
    }
}

/// A violation with the sentence that it breaks.
pub(crate) fn words(violation: &Violation) -> String {
    let sentence = sentence(violation.contract);
    format!("{}: {violation}\n            {sentence}", violation.contract)
}

fn sentence(contract: &str) -> &'static str {
    let mut rules = driver::RULES.iter().chain(witnessed::RULES).copied().chain(manager::all());
    let rule = rules.find(|rule| rule.id == contract).map(|rule| rule.sentence);
    rule.or_else(|| promise::find(contract).map(|promise| promise.sentence)).unwrap_or_default()
}

/// The handles of the volumes of a driver that a node remembers.
pub(crate) fn volumes_on(root: &Path, driver: &str) -> BTreeSet<String> {
    let plugin = root.join("plugins/kubernetes.io/csi");
    let staged = below(&plugin.join(driver)).map(|dir| dir.join("vol_data.json"));
    let mapped = below(&plugin.join("volumeDevices")).map(|dir| dir.join("data/vol_data.json"));
    let pods = below(&root.join("pods")).flat_map(|pod| below(&pod.join("volumes/kubernetes.io~csi")));
    let published = pods.map(|dir| dir.join("vol_data.json"));
    let handle = |path: PathBuf| {
        let data: Value = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
        let text = |field: &str| data[field].as_str().unwrap_or_default();
        (text("driverName") == driver).then(|| text("volumeHandle").to_owned())
    };
    staged.chain(mapped).chain(published).filter_map(handle).collect()
}

/// The entries of a directory; none if there is no such directory.
fn below(directory: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path())
}

#[cfg(test)]
mod counted;
#[cfg(test)]
mod tests {
    use contracts::event::{Actor, MountDel, RpcEnd, RpcStart};
    use harness::Layout;
    use harness::journal::{Journal, Outcome};
    use harness::symbols::Symbols;
    use serde_json::json;

    use super::*;

    fn call(method: &str, volume: &str, id: u64) -> [Event; 2] {
        let req = json!({ "volumeId": volume, "targetPath": "/kl/t", "stagingTargetPath": "/kl/s" });
        let start = RpcStart { id, method: method.to_owned(), req, deadline_s: None };
        let end = RpcEnd {
            id,
            method: method.to_owned(),
            code: "OK".to_owned(),
            message: String::new(),
            dur_ms: 1.0,
            resp: json!({}),
            injected: None,
            abandoned: false,
            unreadable: None,
        };
        [Event::RpcStart(start), Event::RpcEnd(end)]
    }

    fn watch(earlier: &[&str], events: impl IntoIterator<Item = Event>) -> Vec<News> {
        let earlier = earlier.iter().map(|volume| (*volume).to_owned()).collect();
        let mut watched = Watched::new("/kl".into(), earlier);
        let lines = events.into_iter().zip(1..).map(|(event, seq)| TraceLine { seq, t_ms: 0.0, event });
        lines.flat_map(|line| watched.take(line)).collect()
    }

    /// A publish without a stage is a violation, unless the volume was on the node before the watch.
    #[test]
    fn call_before_the_watch_is_ignored() {
        let broken = |news: &[News]| news.iter().any(|news| matches!(news, News::Broken(_)));
        let calls = || call("NodePublishVolume", "v", 1).into_iter().chain(call("NodeUnstageVolume", "v", 2));
        assert!(broken(&watch(&[], calls())));
        assert_eq!(watch(&["v"], calls()), []);
        assert!(broken(&watch(&["w"], calls())));
    }

    /// Bytes that this thread has and did not give back.
    #[global_allocator]
    static COUNTED: counted::Counted = counted::Counted;

    /// The calls of a node with 50 volumes: each is asked for its usage, and a pod comes and goes meanwhile with a volume
    /// that was never seen before.
    fn month(journal: &Journal, watched: &mut Watched, calls: u64) {
        let mut seen = journal.length();
        let mut call = |method: &str, volume: &str| {
            let req = json!({ "volumeId": volume, "targetPath": format!("/elsewhere/{volume}/mount"),
                              "stagingTargetPath": format!("/elsewhere/{volume}/globalmount"), "volumePath": "/kl/x" });
            let id = journal.rpc_start(method, req, None);
            journal.rpc_end(id, Outcome { code: "OK".to_owned(), resp: json!({}), ..Outcome::default() });
            let lines = journal.since_and_forget(seen);
            seen += lines.len();
            lines.into_iter().for_each(|line| drop(watched.take(line)));
        };
        for round in 0..calls / 10 {
            let (usual, new) = (format!("v{}", round % 50), format!("new-{round}"));
            (0..6).for_each(|_| call("NodeGetVolumeStats", &usual));
            for method in ["NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume"]
            {
                call(method, &new);
            }
        }
    }

    #[test]
    fn memory_is_flat_over_200_000_calls() {
        let journal = Journal::new(Symbols::new(Layout::new("/kl", "/kl")), None);
        let mut watched = Watched::new("/kl".into(), BTreeSet::new());
        // Until all that is limited has come to its limit.
        month(&journal, &mut watched, 20_000);
        // The judge keeps a limited number of volumes that are gone.
        watched.judge.forget_gone(0);
        let before = counted::bytes();
        month(&journal, &mut watched, 200_000);
        watched.judge.forget_gone(0);
        let grown = counted::bytes() - before;
        assert!(grown < 200_000, "{grown} bytes in 200,000 calls");
    }

    #[test]
    fn mount_outside_the_root_is_ignored() {
        let gone = |target: &str| {
            Event::MountDel(MountDel {
                target: target.into(),
                id: 1,
                by: Actor::Unknown,
                seen_by: String::new(),
                unnamed: false,
            })
        };
        let news = watch(&[], [gone("/home"), gone("/kl/pods/a"), gone("/klaus")]);
        assert_eq!(news, [News::Happened("    0.000s  umount pods/a".to_owned())]);
    }

    #[test]
    fn a_node_remembers_its_volumes_in_three_places() {
        let root = tempfile::tempdir().unwrap();
        let put = |dir: &str, driver: &str, handle: &str| {
            let dir = root.path().join(dir);
            std::fs::create_dir_all(&dir).unwrap();
            let data = json!({ "driverName": driver, "volumeHandle": handle });
            std::fs::write(dir.join("vol_data.json"), data.to_string()).unwrap();
        };
        put("plugins/kubernetes.io/csi/my.csi/0123", "my.csi", "staged");
        put("plugins/kubernetes.io/csi/volumeDevices/pv/data", "my.csi", "mapped");
        put("pods/uid/volumes/kubernetes.io~csi/pv", "my.csi", "published");
        put("pods/uid/volumes/kubernetes.io~csi/other", "other.csi", "another's");
        std::fs::create_dir_all(root.path().join("pods/uid/volumes/kubernetes.io~csi/half")).unwrap();
        let found = volumes_on(root.path(), "my.csi");
        assert_eq!(found.iter().map(String::as_str).collect::<Vec<_>>(), ["mapped", "published", "staged"]);
        assert!(volumes_on(&root.path().join("nowhere"), "my.csi").is_empty());
    }
}
