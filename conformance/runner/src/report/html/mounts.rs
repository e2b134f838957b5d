//! The mount table at the end of a case against the one at its beginning, as a tree by path.
//!
//! A trace has no table, only changes. So a mount was there at the beginning if it is removed or changed without having
//! been made in the trace. The mounts that the harness makes for the case count as its beginning.

use std::collections::BTreeMap;

use contracts::event::{Actor, Event, Mount, MountDel};
use maud::{Markup, html};

use tree::{Directory, Line, Mark};

mod tree;

/// The most lines of a tree.
const LINES: usize = 200;

/// The mounts of a trace. One that came and went is in no difference, and is forgotten.
#[derive(Debug, Default)]
pub(super) struct Mounts {
    /// By the kernel's id, which grows: of two on one path the later one is above.
    live: BTreeMap<u64, Live>,
    /// Those of the beginning that are gone: the path, and the mount if the trace shows it.
    gone: Vec<(String, Option<Mount>)>,
}

#[derive(Debug)]
struct Live {
    now: Mount,
    before: Before,
}

/// A mount at the beginning of the case.
#[derive(Debug)]
enum Before {
    Absent,
    /// It was there, and the trace does not show how.
    Unseen,
    Seen(Box<Mount>),
}

impl Mounts {
    pub(super) fn event(&mut self, event: &Event) {
        match event {
            Event::MountAdd(mount) => {
                let before = match mount.by {
                    Actor::Harness => Before::Seen(Box::new(mount.clone())),
                    _ => Before::Absent,
                };
                self.live.insert(mount.id, Live { now: mount.clone(), before });
            }
            Event::MountChg(mount) => {
                let known = self.live.remove(&mount.id);
                let before = known.map_or(Before::Unseen, |known| known.before);
                self.live.insert(mount.id, Live { now: mount.clone(), before });
            }
            Event::MountDel(gone) => self.remove(gone),
            _ => {}
        }
    }

    fn remove(&mut self, MountDel { target, id, by, .. }: &MountDel) {
        match self.live.remove(id).map(|known| known.before) {
            Some(Before::Absent) => {}
            Some(Before::Seen(_)) if *by == Actor::Harness => {}
            Some(Before::Seen(mount)) => self.gone.push((target.clone(), Some(*mount))),
            Some(Before::Unseen) | None => self.gone.push((target.clone(), None)),
        }
    }

    /// Nothing if end and beginning are equal.
    pub(super) fn difference(&self) -> Markup {
        let mut lines = self.lines();
        let more = lines.len().saturating_sub(LINES);
        lines.truncate(LINES);
        html! {
            @if !lines.is_empty() {
                p.quiet {
                    "mounts at the end of the case, against its beginning: + new, - gone, ~ changed. A line that ends \
                     with / is a directory. A trace has only changes: mounts that it does not name are not here."
                }
                pre.diff.tree tabindex="0" {
                    @for line in &lines { (line.markup()) }
                    @if more > 0 { span.quiet { "  … and " (more) " lines more" } }
                }
            }
        }
    }

    fn lines(&self) -> Vec<Line> {
        let mut root = Directory::default();
        for (target, mount) in &self.gone {
            let shown = mount.as_ref().map(|mount| format!("  =  {}", described(mount)));
            root.add(target, Mark::Gone, shown.unwrap_or_default());
        }
        for live in self.live.values() {
            let (mark, shown) = live.compared();
            root.add(&live.now.target, mark, shown);
        }
        root.lines()
    }
}

impl Live {
    fn compared(&self) -> (Mark, String) {
        let now = described(&self.now);
        match &self.before {
            Before::Absent => (Mark::New, format!("  =  {now}")),
            Before::Unseen => (Mark::Changed, format!("  is  {now} after a change")),
            Before::Seen(before) => match changes(before, &self.now) {
                changes if changes.is_empty() => (Mark::Same, format!("  =  {now}")),
                changes => (Mark::Changed, format!("  {}", changes.join(", "))),
            },
        }
    }
}

fn described(mount: &Mount) -> String {
    let root = if mount.root == "/" { String::new() } else { format!("[{}]", mount.root) };
    format!("{} {}{root} ({})", mount.fstype, mount.source, mount.opts)
}

/// `options rw → ro`, for each part that is another one now.
fn changes(before: &Mount, now: &Mount) -> Vec<String> {
    let parts = [
        ("source", &before.source, &now.source),
        ("options", &before.opts, &now.opts),
        ("file system", &before.super_opts, &now.super_opts),
        ("propagation", &before.propagation, &now.propagation),
    ];
    let shown = |text: &str| if text.is_empty() { "none".to_owned() } else { text.to_owned() };
    let changed = parts.into_iter().filter(|(_, before, now)| before != now);
    changed.map(|(part, before, now)| format!("{part} {} → {}", shown(before), shown(now))).collect()
}

#[cfg(test)]
mod tests;
