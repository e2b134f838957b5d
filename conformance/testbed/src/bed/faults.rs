//! Faults that a case orders: calls that fail, are repeated or held, and the death of the node or the driver.

use std::io;
use std::process::Stdio;

use harness::driver::Exit;
use harness::node::NodeError;
use harness::proxy::Rule;

use super::patience::Waited;
use super::{Bed, Result, StepError, ended_by_itself};
use crate::call::{Code, Method};
use crate::dead_end::WAITED_FOR;

/// The `oom_score_adj` of a process that the kernel is to kill first when there is no memory left.
const FIRST_TO_DIE: &str = "1000";

impl Bed {
    /// Lets the next calls fail before they reach the driver.
    pub(crate) fn fail(&self, method: Method, code: Code, times: u32) {
        self.proxy().inject(Rule::of(method.name()).code(code.name()).times(times));
    }

    /// Lets the proxy make each call that changes a volume twice.
    pub(crate) fn repeat_every_call(&self) {
        self.made.repeats.set(true);
        for method in ["CreateVolume", "DeleteVolume"].into_iter().chain(WAITED_FOR) {
            self.proxy().inject(Rule { duplicate: true, ..Rule::of(method) });
        }
    }

    /// Holds the next answer.
    pub(crate) fn hold(&self, method: Method) {
        let gate = self.proxy().hold(method.name());
        self.made.gates.borrow_mut().insert(method.name(), gate);
    }

    /// Holds the next answer and then loses it.
    pub(crate) fn hold_and_lose(&self, method: Method) {
        let lost = Rule::of(method.name()).code("Unavailable").times(1).forward();
        let gate = self.proxy().hold_with(lost);
        self.made.gates.borrow_mut().insert(method.name(), gate);
    }

    /// Waits until an answer is held.
    pub(crate) async fn held(&self, method: Method) -> Result {
        let Some(gate) = self.made.gates.borrow().get(method.name()).cloned() else { return Ok(()) };
        let held = tokio::time::timeout(self.limit, gate.reached()).await;
        held.map(drop).map_err(|_| {
            let (name, limit) = (method.name(), self.limit.as_secs());
            StepError::Broken(vec![format!("No {name} was answered within {limit} s.")])
        })
    }

    /// Waits until an answer that is OK is held; others go on.
    pub(crate) async fn held_success(&self, method: Method) -> Result {
        let success = async {
            loop {
                let Some(gate) = self.made.gates.borrow().get(method.name()).cloned() else { return };
                if gate.reached().await == tonic::Code::Ok {
                    return;
                }
                // The next answer is held before the node can ask for it.
                self.hold(method);
                gate.open();
            }
        };
        tokio::select! {
            biased;
            () = success => Ok(()),
            end = self.dead_end(&self.journal) => {
                self.made.dead_ends.borrow_mut().insert(end.key.clone());
                Err(StepError::Broken(end.explain(&never_ok(method))))
            }
            () = tokio::time::sleep(self.limit) => Err(StepError::Broken(vec![never_ok(method) + "."])),
        }
    }

    /// Lets a held answer go on.
    pub(crate) fn release(&self, method: Method) {
        if let Some(gate) = self.made.gates.borrow_mut().remove(method.name()) {
            gate.open();
        }
    }

    /// Lets the node die after this number of further effects.
    pub(crate) async fn doom_node(&self, effects: u64) {
        self.node.dies_after(effects);
    }

    /// Waits until the node is idle, or starts it again if it has died. Returns whether it had died.
    pub(crate) async fn revive_node(&self) -> Result<bool> {
        let node = &self.node;
        if node.is_running() {
            match self.patiently(&self.journal, |limit| node.wait_idle(limit)).await {
                Ok(()) => return Ok(false),
                Err(Waited { node: NodeError::Down | NodeError::Exited { .. }, .. }) => {}
                Err(waited) => return Err(waited.into()),
            }
        }
        node.restart().await.map_err(|error| StepError::ours(&error))?;
        Ok(true)
    }

    /// Lets the machine run out of memory, so that the kernel kills the driver.
    pub(crate) async fn starve_driver(&self) -> Result {
        self.expect_driver_death();
        let (driver, exited) = {
            let driver = self.driver().lock().await;
            (driver.pid(), driver.exited())
        };
        let ours = |error: io::Error| StepError::ours(&error);
        let score = driver.map(|pid| format!("/proc/{pid}/oom_score_adj")).ok_or(io::ErrorKind::NotFound);
        std::fs::write(score.map_err(io::Error::from).map_err(ours)?, FIRST_TO_DIE).map_err(ours)?;
        // `tail` keeps its last line in memory, and /dev/zero has no end of line. The kernel kills it after the driver.
        let mut hog = tokio::process::Command::new("tail");
        let hog = hog.arg("/dev/zero").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut hog = hog.kill_on_drop(true).spawn().map_err(ours)?;
        let died = tokio::time::timeout(self.limit, async { tokio::join!(exited, hog.wait()) }).await;
        match died {
            Ok((Exit::Signal(_), _)) => Ok(()),
            Ok((exit, _)) => Err(StepError::Broken(vec![ended_by_itself(exit)])),
            Err(_) => Err(StepError::Ours(vec!["memory did not run out in time".to_owned()])),
        }
    }

    /// Has the kernel panic: data that is not on disk yet is lost, and no process is ended in order.
    pub(crate) fn panic_kernel(&self) -> Result {
        std::fs::write("/proc/sysrq-trigger", "c").map_err(|error| StepError::ours(&error))
    }
}

fn never_ok(method: Method) -> String {
    format!("{} is never answered with OK", method.name())
}
