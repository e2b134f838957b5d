//! What lay in the way of a call that failed, and during which call it had appeared. Touches nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use contracts::event::{Event, RpcEnd, TraceLine};

use super::around::Around;

/// Entries by the call during which they appeared, and those that were found in the way of a later call.
#[derive(Debug, Default)]
pub(super) struct InTheWay {
    makers: BTreeMap<PathBuf, (String, u64)>,
    found: BTreeSet<String>,
}

impl InTheWay {
    /// Takes note of a call that has ended; `around` was looked at when it began, after so many lines of `trace`.
    pub(super) fn ended(
        &mut self,
        around: &Around,
        end: &RpcEnd,
        is_block: bool,
        trace: &[TraceLine],
        began: usize,
    ) {
        if end.code != "OK"
            && end.is_from_the_driver()
            && let Some(kind) = around.in_the_way(&end.method, is_block)
        {
            let path = around.path();
            let maker = self.maker(path, trace);
            self.found.insert(format!(
                "{kind} lay at `{}` when {} was called: {maker}",
                path.display(),
                end.method
            ));
        }
        for path in around.new_entries(&trace[began..]) {
            self.makers.entry(path).or_insert_with(|| (end.method.clone(), end.id));
        }
    }

    /// Forgets what is known of entries where there are too many of them.
    pub(super) fn limit(&mut self, most: usize) {
        if self.makers.len() > most {
            self.makers.clear();
        }
        if self.found.len() > most {
            self.found.clear();
        }
    }

    /// A line for each, with real paths.
    pub(super) fn found(&self) -> Vec<String> {
        self.found.iter().cloned().collect()
    }

    fn maker(&self, path: &Path, trace: &[TraceLine]) -> String {
        let is_the_nodes = |line: &TraceLine| match &line.event {
            Event::Effect(effect) => {
                Path::new(&effect.path) == path
                    && ["mkdir", "write", "link"].contains(&effect.effect.as_str())
            }
            _ => false,
        };
        match self.makers.get(path) {
            Some((method, call)) => format!("it appeared during {method} (call {call})"),
            None if trace.iter().any(is_the_nodes) => "the node had made it".to_owned(),
            None => "it appeared during no call".to_owned(),
        }
    }
}
