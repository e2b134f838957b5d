//! Mount tables without the numbers that differ between kernels: ids, devices, groups.

use std::collections::BTreeMap;
use std::path::Path;

use host::{MountEntry, MountTable};

/// The mounts at and below `root`, a line each, in an order that depends only on their places; numbers are
/// assigned anew in that order.
pub(crate) fn canonical(table: &MountTable, root: &Path) -> Vec<String> {
    let by_id: BTreeMap<u64, &MountEntry> = table.entries().iter().map(|entry| (entry.id, entry)).collect();
    let inside = |entry: &&MountEntry| entry.mount_point.starts_with(root);
    let mut keyed: Vec<(Vec<String>, &MountEntry)> =
        table.entries().iter().filter(inside).map(|entry| (key(entry, &by_id, root), entry)).collect();
    keyed.sort_by(|left, right| left.0.cmp(&right.0));
    let (mut devices, mut groups) = (Names::new("fs"), Names::new("group "));
    keyed
        .into_iter()
        .map(|(key, entry)| {
            let mut line =
                format!("{} shows {}:{}", key.join(" > "), devices.name(entry.dev), entry.root.display());
            line.push_str(&format!(" {}", entry.options.join(",")));
            for (word, group) in
                [("shared", entry.shared), ("master", entry.master), ("from", entry.propagate_from)]
            {
                if let Some(group) = group {
                    line.push_str(&format!(" {word} {}", groups.name(group)));
                }
            }
            if entry.unbindable {
                line.push_str(" unbindable");
            }
            line
        })
        .collect()
}

/// The mount points from the root's mount to this one, which are unique.
fn key(entry: &MountEntry, by_id: &BTreeMap<u64, &MountEntry>, root: &Path) -> Vec<String> {
    let mut key = Vec::new();
    let mut here = Some(entry);
    while let Some(mount) = here.filter(|mount| mount.mount_point.starts_with(root)) {
        let below = mount.mount_point.strip_prefix(root).unwrap();
        key.push(format!("/{}", below.display()));
        here = by_id.get(&mount.parent).copied().filter(|parent| parent.id != mount.id);
    }
    key.reverse();
    key
}

/// The lines that only one of the tables has.
pub(crate) fn difference(there: &[String], here: &[String]) -> String {
    let only = |these: &[String], those: &[String], mark: char| {
        let missing = these.iter().filter(|line| !those.contains(line));
        missing.map(|line| format!("\n  {mark} {line}")).collect::<String>()
    };
    format!("the tables differ (- kernel, + fake){}{}", only(there, here, '-'), only(here, there, '+'))
}

/// Names numbered in the order of their first use.
struct Names<K> {
    prefix: &'static str,
    given: BTreeMap<K, usize>,
}

impl<K: Ord> Names<K> {
    fn new(prefix: &'static str) -> Self {
        Self { prefix, given: BTreeMap::new() }
    }

    fn name(&mut self, key: K) -> String {
        let next = self.given.len() + 1;
        format!("{}{}", self.prefix, self.given.entry(key).or_insert(next))
    }
}
