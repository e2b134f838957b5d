//! A tree of directories with what is mounted on them, as lines.

use std::collections::BTreeMap;
use std::fmt;

use maud::{Markup, html};

use crate::report::html::single_line;

/// The relation of a line to the beginning of the case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    Same,
    Gone,
    New,
    Changed,
}

/// A directory with what is mounted on it, the lowest first, and with the directories below it.
#[derive(Debug, Default)]
pub(super) struct Directory<'a> {
    mounts: Vec<(Mark, String)>,
    below: BTreeMap<&'a str, Directory<'a>>,
}

impl<'a> Directory<'a> {
    pub(super) fn add(&mut self, target: &'a str, mark: Mark, shown: String) {
        let names = target.trim_end_matches('/').split('/');
        let directory = names.fold(self, |directory, name| directory.below.entry(name).or_default());
        directory.mounts.push((mark, shown));
    }

    /// The directories below as lines; none if everything is the same.
    pub(super) fn lines(&self) -> Vec<Line> {
        let mut lines = Vec::new();
        if self.differs() {
            self.write_below(0, &mut lines);
        }
        lines
    }

    fn differs(&self) -> bool {
        self.mounts.iter().any(|(mark, _)| *mark != Mark::Same) || self.below.values().any(Self::differs)
    }

    fn count(&self) -> usize {
        self.mounts.len() + self.below.values().map(Self::count).sum::<usize>()
    }

    fn write(&self, name: &str, depth: usize, lines: &mut Vec<Line>) {
        // A chain of directories without mounts is one line.
        if self.mounts.is_empty()
            && let (1, Some((next, only))) = (self.below.len(), self.below.first_key_value())
        {
            return only.write(&format!("{name}/{next}"), depth, lines);
        }
        if self.mounts.is_empty() {
            lines.push(Line::new(Mark::Same, depth, &format!("{name}/")));
        }
        let name = if name.is_empty() { "/" } else { name };
        lines.extend(
            self.mounts.iter().map(|(mark, shown)| Line::new(*mark, depth, &format!("{name}{shown}"))),
        );
        self.write_below(depth + 1, lines);
    }

    /// Mounts that are the same, with nothing else below them, are only counted.
    fn write_below(&self, depth: usize, lines: &mut Vec<Line>) {
        let (differing, same): (Vec<_>, Vec<_>) = self.below.iter().partition(|(_, below)| below.differs());
        differing.into_iter().for_each(|(name, below)| below.write(name, depth, lines));
        match same.into_iter().map(|(_, below)| below.count()).sum::<usize>() {
            0 => {}
            count => lines.push(Line::new(Mark::Same, depth, &format!("{count} unchanged"))),
        }
    }
}

#[derive(Debug)]
pub(super) struct Line {
    mark: Mark,
    depth: usize,
    text: String,
}

impl Line {
    fn new(mark: Mark, depth: usize, text: &str) -> Self {
        Self { mark, depth, text: single_line(text) }
    }

    fn class(&self) -> &'static str {
        match self.mark {
            Mark::Same => "quiet",
            Mark::Gone => "gone",
            Mark::New => "new",
            Mark::Changed => "changed",
        }
    }

    pub(super) fn markup(&self) -> Markup {
        html! { span class=(self.class()) style={ "--depth:" (self.depth) } { (self) } }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = match self.mark {
            Mark::Same => ' ',
            Mark::Gone => '-',
            Mark::New => '+',
            Mark::Changed => '~',
        };
        write!(f, "{sign} {:indent$}{}", "", self.text, indent = 2 * self.depth)
    }
}
