//! Indexes of the books, so that a rule need not search all entries.
//!
//! A recording may have any number of volumes and of calls without an end. Rules ask at each line for the calls under way
//! and for the volumes of a path. The indexes answer that, so that judging takes time in proportion to the recording's
//! length, and not to its square.

use std::collections::{BTreeMap, BTreeSet};

use super::Call;
use crate::rule::work;

/// Calls under way by volume and method. No entry is empty.
#[derive(Debug, Clone, Default)]
pub(super) struct Flights(BTreeMap<String, BTreeMap<String, BTreeSet<u64>>>);

impl Flights {
    pub(super) fn add(&mut self, id: u64, call: &Call) {
        let methods = self.0.entry(call.volume().to_owned()).or_default();
        methods.entry(call.method.clone()).or_default().insert(id);
    }

    pub(super) fn remove(&mut self, id: u64, call: &Call) {
        let Some(methods) = self.0.get_mut(call.volume()) else { return };
        if let Some(ids) = methods.get_mut(&call.method) {
            ids.remove(&id);
            if ids.is_empty() {
                methods.remove(&call.method);
            }
        }
        if methods.is_empty() {
            self.0.remove(call.volume());
        }
    }

    /// The calls of one method under way for a volume.
    pub(super) fn calls(&self, volume: &str, method: &str) -> impl Iterator<Item = u64> {
        let ids = self.0.get(volume).and_then(|methods| methods.get(method));
        ids.into_iter().flatten().inspect(|_| work::add()).copied()
    }

    /// The methods under way for a volume, each once.
    pub(super) fn methods(&self, volume: &str) -> impl Iterator<Item = &str> {
        let methods = self.0.get(volume).into_iter().flat_map(BTreeMap::keys);
        methods.inspect(|_| work::add()).map(String::as_str)
    }

    /// All calls, which are under way no more.
    pub(super) fn take(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.0).into_values().flat_map(BTreeMap::into_values).flatten().collect()
    }
}

/// The volumes that were ever asked for at a path, as their staging path or a target.
#[derive(Debug, Clone, Default)]
pub(super) struct Paths(BTreeMap<String, BTreeSet<String>>);

impl Paths {
    pub(super) fn add(&mut self, path: &str, volume: &str) {
        self.0.entry(path.to_owned()).or_default().insert(volume.to_owned());
    }

    /// Keeps the volumes that are still known.
    pub(super) fn retain(&mut self, is_known: impl Fn(&str) -> bool) {
        self.0.retain(|_, volumes| {
            volumes.retain(|volume| is_known(volume));
            !volumes.is_empty()
        });
    }

    pub(super) fn volumes(&self, path: &str) -> impl Iterator<Item = &str> {
        self.0.get(path).into_iter().flatten().inspect(|_| work::add()).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use crate::event::{Event, RpcStart, TraceLine};
    use crate::rule::{Judge, Witness};

    use crate::rule::work::LOOKED_AT;

    /// A recording of calls that never end, of one volume or each of another.
    fn recording(calls: u64, of_one_volume: bool) -> Vec<TraceLine> {
        let methods = ["NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume"];
        let line = |seq: u64| {
            let volume = if of_one_volume { 0 } else { seq };
            let req = serde_json::json!({
                "volumeId": format!("v{volume}"),
                "stagingTargetPath": format!("/kl/staging/v{volume}"),
                "targetPath": format!("/kl/pods/{seq}/mount"),
            });
            let method = methods[usize::try_from(seq).unwrap() % methods.len()].to_owned();
            let event = Event::RpcStart(RpcStart { id: seq, method, req, deadline_s: None });
            TraceLine { seq, t_ms: 0.0, event }
        };
        (1..=calls).map(line).collect()
    }

    fn looked_at(trace: &[TraceLine]) -> usize {
        LOOKED_AT.set(0);
        let rules = crate::driver::RULES.iter().copied().chain(crate::manager::all());
        let mut judge = Judge::new(rules, &[Witness::Rpc, Witness::Kernel]);
        trace.iter().for_each(|line| drop(judge.event(line)));
        LOOKED_AT.get()
    }

    #[test]
    fn calls_without_an_end_cost_the_same_each() {
        for of_one_volume in [true, false] {
            let [short, long] = [500, 4000].map(|calls| looked_at(&recording(calls, of_one_volume)));
            assert!(short > 0 || !of_one_volume, "nothing was counted");
            assert!(long <= 10 * short.max(500), "{short} for 500 calls, {long} for 4000: {of_one_volume}");
        }
    }
}
