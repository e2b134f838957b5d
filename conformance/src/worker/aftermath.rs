//! What is looked at after each case, unasked: leftovers, the kernel's log, strays and phantoms, the
//! numbered promises, the driver's books, and whether a secret was written anywhere.

use std::path::Path;

use contracts::rule::Rest;
use harness::census::Census;
use harness::sandbox::Sandbox;

use super::judge;
use super::message::Orders;
use super::scene::Scene;
use crate::event::{Breakage, Place};
use crate::finding::Finding;

/// What was there before the case.
#[derive(Debug)]
pub(super) struct Before {
    census: Option<Census>,
}

impl Before {
    pub(super) fn take(sandbox: &Sandbox) -> Self {
        // Where it cannot be taken now it cannot be taken later either, and then that is said.
        Self { census: Census::take(sandbox, &[]).ok() }
    }
}

/// What was seen after it.
#[derive(Debug, Default)]
pub(super) struct Aftermath {
    pub(super) findings: Vec<Finding>,
    pub(super) left_behind: Vec<String>,
    pub(super) kernel: Vec<String>,
    pub(super) unchecked: Vec<String>,
    /// The driver's end, if nobody asked for it.
    pub(super) driver_exited: Option<String>,
    /// What the suite could not do.
    pub(super) ours: Option<String>,
}

impl Aftermath {
    /// Looks at everything. The order matters: the volumes go first, since what a volume needs is no
    /// leftover while it exists, and the node and the driver are asked to end last, since a driver that dies
    /// of old age must not look like one that crashed.
    pub(super) async fn see(scene: &Scene, orders: &Orders, sandbox: &Sandbox, before: Before) -> Self {
        let mut after = Self { driver_exited: scene.driver_exit(), ..Self::default() };
        let settled = scene.wind_up().await;
        after.check_books(scene).await;
        after.take_census(sandbox, before, scene);
        let trace = scene.journal().trace();
        // Only of a case that came to rest can be asked what should have happened in the end.
        let rest = Rest::default();
        after.findings = judge::findings(&trace, settled.then_some(&rest));
        after.findings.extend(judge::irregular(&scene.journal().irregular(), &trace));
        scene.end().await;
        after.scan_for_secrets(scene, &orders.directory);
        if let Err(error) = scene.journal().write(&orders.directory) {
            after.unchecked.push(format!("the journal: {error}"));
        }
        after
    }

    fn take_census(&mut self, sandbox: &Sandbox, before: Before, scene: &Scene) {
        match (before.census, Census::take(sandbox, &[])) {
            (Some(before), Ok(census)) => {
                let symbols = scene.journal().symbols();
                let lines = census.leftovers(&before).into_iter().map(|left| symbols.text(&left.to_string()));
                self.left_behind.extend(lines);
            }
            (_, Err(error)) => self.unchecked.push(format!("leftovers: {error}")),
            (None, Ok(_)) => self.unchecked.push("leftovers: nothing was counted before the case".to_owned()),
        }
    }

    async fn check_books(&mut self, scene: &Scene) {
        match scene.books().await {
            Ok(None) => {}
            Ok(Some(volumes)) => {
                let line = |volume| format!("volume {volume} is still in the driver's books (ListVolumes)");
                self.left_behind.extend(volumes.into_iter().map(line));
            }
            Err(chain) => self.unchecked.push(format!("the driver's books: {}", chain.join(": "))),
        }
    }

    fn scan_for_secrets(&mut self, scene: &Scene, directory: &Path) {
        for file in ["driver.log", "manager.log", "kernel.log", "trace.jsonl", "journal.txt"] {
            let text = std::fs::read(directory.join(file)).unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            if scene.secrets().iter().any(|secret| text.contains(secret.reveal().as_str())) {
                self.findings.push(judge::secret_told(file));
            }
        }
    }
}

/// The breakage of something that was seen after the last step.
pub(super) fn at_the_end(said: String, at: Place) -> Breakage {
    Breakage { after: String::new(), at, expected: None, actual: None, cause: vec![said] }
}
