//! The checks after each case: leftovers, the kernel's log, strays and phantoms, the numbered promises, the driver's books,
//! and secrets in logs.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use contracts::rule::Rest;
use harness::census::{Census, Leftover};
use harness::kernel_log::{KernelLog, KernelLogError, Message, devices_named, splats};
use harness::manifest::Sensitive;
use harness::sandbox::Sandbox;
use harness::testbed::OtherNode;

use crate::finding::Finding;
use crate::judge;
use crate::logs::{self, moments};
use crate::promises::Judged;
use testbed::bed::{Bed, Books};
use testbed::failure::{Breakage, Place, chain};
use testbed::limits;
use testbed::message::Orders;

/// The number of leftover processes that are listed one by one: a driver that forks without end leaves thousands.
const PROCESSES: usize = 10;

/// The time for zombies of a driver that has just ended to disappear: PID 1 waits for them.
const BURIAL: Duration = Duration::from_secs(1);

/// The time for a program to end that a driver has run at its end and not waited for.
const LAST_CHILD: Duration = Duration::from_millis(200);

/// The state before the case.
#[derive(Debug)]
pub(super) struct Before {
    census: Option<Census>,
    log: Result<KernelLog, KernelLogError>,
}

impl Before {
    pub(super) fn take(sandbox: &Sandbox) -> Self {
        // If the census cannot be taken now, it cannot be taken later either, and the later attempt reports why.
        Self { census: Census::take(sandbox, &[]).ok(), log: KernelLog::start() }
    }
}

/// The observations after the case.
#[derive(Debug, Default)]
pub(super) struct Aftermath {
    pub(super) findings: Vec<Finding>,
    /// The promises that were kept or not observable.
    pub(super) judged: Judged,
    pub(super) left_behind: Vec<String>,
    /// Those of them that are mounts of the driver's own, outside of the node's directories.
    mounts: Vec<String>,
    pub(super) kernel: Vec<String>,
    pub(super) unchecked: Vec<String>,
    /// The end of the driver, if that was unasked.
    pub(super) driver_exited: Option<String>,
    /// The method that was under way then.
    pub(super) ended_during: Option<String>,
    /// The message of the crash, if it was one.
    pub(super) crash: Option<String>,
}

impl Aftermath {
    /// Makes all checks, in this order: volumes are deleted first, because the resources of a volume are no leftovers while
    /// it exists. Node and driver are asked to end last, because a driver that ends when it is asked must not look like one
    /// that crashed.
    pub(super) async fn see(
        bed: &Bed,
        orders: &Orders,
        sandbox: &Sandbox,
        before: Before,
        failed: bool,
    ) -> Self {
        // With `--keep`, the state of a failed case is not taken down.
        let stays = failed && orders.keep;
        let mut after = Self::of_case(bed, sandbox, &before, failed, stays).await;
        if !stays {
            after.end_driver(bed, before.census.as_ref(), failed).await;
        }
        after.see_limits(bed, sandbox);
        let records = after.read_records(bed, before.log);
        after.write_records(bed, orders, &records);
        after
    }

    /// Makes all checks except the end of node and driver, which the next case uses too. Returns the records, too, if they
    /// were not written because nothing was found yet.
    pub(super) async fn between_cases(
        bed: &Bed,
        orders: &Orders,
        sandbox: &Sandbox,
        before: Before,
        failed: bool,
    ) -> (Self, Option<Records>) {
        let mut after = Self::of_case(bed, sandbox, &before, failed, false).await;
        let records = after.read_records(bed, before.log);
        // What is written is searched for secrets.
        let is_wanted = orders.keeps_all_logs || failed || !after.is_clean() || !bed.secrets().is_empty();
        if is_wanted {
            after.write_records(bed, orders, &records);
        }
        (after, (!is_wanted).then_some(records))
    }

    /// Ends the node and the driver of several cases. The findings belong to all of these cases.
    pub(super) async fn of_shared_driver(
        bed: &Bed,
        orders: &Orders,
        sandbox: &Sandbox,
        before: &Before,
        secrets: &[Sensitive<String>],
    ) -> Self {
        let mut after = Self::default();
        after.end_driver(bed, before.census.as_ref(), false).await;
        after.see_limits(bed, sandbox);
        after.scan_for_secrets(secrets, &["driver.log", "manager.log"], &orders.directory);
        after.unchecked.extend(unhidden(bed, orders));
        after
    }

    /// Whether nothing was found, left behind or reported by the kernel.
    pub(super) fn is_clean(&self) -> bool {
        self.driver_exited.is_none()
            && self.left_behind.is_empty()
            && self.kernel.is_empty()
            && !self.findings.iter().any(Finding::is_fault)
    }

    /// Finds the leftovers of the case and applies the rules to its trace.
    async fn of_case(bed: &Bed, sandbox: &Sandbox, before: &Before, failed: bool, stays: bool) -> Self {
        let mut after = Self { driver_exited: bed.driver_exit().await, ..Self::default() };
        if after.driver_exited.is_some() {
            after.crash = bed.crash_message().await;
        }
        if stays {
            after.unchecked.push("leftovers: everything stays as it was when the case broke".to_owned());
        } else if after.driver_exited.is_none() {
            after.left_behind = bed.wind_up(failed).await;
        }
        let settled = !stays && after.driver_exited.is_none() && after.left_behind.is_empty();
        if !stays
            && after.driver_exited.is_none()
            && let Err(chain) = bed.introduce_again(failed).await
        {
            after.unchecked.push(format!("what the driver says of itself: {}", chain.join(": ")));
        }
        if settled {
            after.check_books(bed).await;
        }
        if !stays {
            after.take_census(sandbox, before.census.as_ref(), bed);
            after.left_behind.extend(bed.foreign_loops());
        }
        after.apply_rules(bed, settled, failed).await;
        let symbols = bed.journal.symbols();
        after.left_behind = after.left_behind.iter().map(|line| symbols.text(line)).collect();
        after
    }

    async fn apply_rules(&mut self, bed: &Bed, settled: bool, failed: bool) {
        let trace = bed.journal.trace();
        if self.driver_exited.is_some() {
            self.ended_during = judge::call_at_the_end(&trace).map(str::to_owned);
        }
        // Events that should happen eventually are asked for only if the case came to rest.
        let rest = Rest::default();
        let (findings, judged) = judge::judgement(&trace, settled.then_some(&rest), bed.journal.symbols());
        (self.findings, self.judged) = (findings, judged);
        if self.findings.iter().any(judge::is_of_a_deleted_volume) {
            // The records of its staging stay as long as the node asks to have it undone.
            let is_record =
                |line: &String| line.starts_with("file ") && line.contains("/plugins/kubernetes.io");
            self.left_behind.retain(|line| !is_record(line));
        }
        if let Some(other) = bed.other() {
            other.journal.suspects_settle().await;
        }
        self.judge_other(bed, settled);
        if settled && !failed {
            self.findings.extend(judge::mounts_left(&self.mounts));
            let held = bed.driver_holds();
            self.findings.extend(judge::held(&held));
            self.judged.kept.extend(judge::released(&trace, &held, !bed.devices().is_empty()));
        }
        self.findings.extend(bed.unanswered().iter().map(|method| judge::unanswered(method)));
        bed.journal.suspects_settle().await;
        self.findings.extend(judge::irregular(&bed.journal.irregular(), bed.journal.symbols()));
    }

    /// Ends the node and the driver, and counts the processes that are left.
    async fn end_driver(&mut self, bed: &Bed, before: Option<&Census>, failed: bool) {
        self.left_behind.extend(bed.end(failed).await);
        self.count_processes(before).await;
        let lost = bed.finish_log().await;
        self.findings.extend(judge::log_used_up(lost.beyond_limit));
        if lost.unwritten > 0 {
            let lack =
                format!("{} bytes of the driver's log, for which the disk had no room", lost.unwritten);
            self.unchecked.push(lack);
        }
        if let Err(error) = bed.clean_up().await {
            self.findings.push(judge::environment(&chain(&error).join(": "), &[]));
        }
    }

    /// Finds limits of the machine that the driver has reached, and files that it has written to the machine.
    fn see_limits(&mut self, bed: &Bed, sandbox: &Sandbox) {
        // In a guest nothing that is written harms the machine, and the suite's own servers write, too.
        if !harness::facts::in_guest() {
            let is_prepared = !bed.manifest().per_case.prepare.is_empty();
            self.findings.extend(judge::machine_written(&sandbox.written(), is_prepared));
        }
        let beside = bed.cgroup().map(harness::cgroup::Cgroup::made_beside).unwrap_or_default();
        self.findings.extend(judge::groups_made(&beside));
        let mut used_up = limits::used_up(bed.cgroup(), sandbox.layout().state());
        if sandbox.is_machine_full() {
            let limit = "what it may write beside its own directory is full, and all of that is thrown away";
            used_up.push(("used up its room on the machine", limit.to_owned()));
        }
        self.findings.extend(used_up.iter().map(|(cause, limit)| judge::used_up(cause, limit)));
    }

    /// Reads the kernel's log and the secrets that the driver has repeated.
    fn read_records(&mut self, bed: &Bed, log: Result<KernelLog, KernelLogError>) -> Records {
        let records = Records {
            messages: self.read_kernel_log(log, &bed.devices()),
            zero: harness::clock::milliseconds() - bed.journal.milliseconds(),
        };
        let repeated = bed.journal.leaked_secrets();
        self.findings.extend(repeated.iter().map(|(method, key)| judge::secret_repeated(method, key)));
        let in_contexts = bed.journal.secrets_in_contexts();
        self.findings.extend(in_contexts.iter().map(|(method, key)| judge::secret_in_context(method, key)));
        records
    }

    /// Writes the journals, and looks for secrets in all logs.
    fn write_records(&mut self, bed: &Bed, orders: &Orders, records: &Records) {
        self.unchecked.extend(records.write(bed, orders));
        // The node's log repeats the driver's errors. If those have a secret, that is a finding already.
        let manager = if bed.journal.leaked_secrets().is_empty() { "manager.log" } else { "" };
        let files = ["driver.log", manager, "kernel.log", "trace.jsonl", "journal.txt"];
        // Last: all logs must be written before they are scanned.
        self.scan_for_secrets(&bed.secrets(), &files, &orders.directory);
        self.unchecked.extend(unhidden(bed, orders));
    }

    /// Judges the other node's trace by the same rules.
    fn judge_other(&mut self, bed: &Bed, settled: bool) {
        let Some(other) = bed.other() else { return };
        let (trace, symbols) = (other.journal.trace(), other.journal.symbols());
        let rest = Rest::default();
        let (findings, judged) = judge::judgement(&trace, settled.then_some(&rest), symbols);
        self.findings.extend(findings);
        self.findings.extend(judge::irregular(&other.journal.irregular(), symbols));
        self.judged.kept.extend(judged.kept);
    }

    fn take_census(&mut self, sandbox: &Sandbox, before: Option<&Census>, bed: &Bed) {
        let other = bed.other_root();
        let more: Vec<&Path> = other.iter().flat_map(|(_, volumes)| volumes).map(PathBuf::as_path).collect();
        match (before, Census::take(sandbox, &more)) {
            (Some(before), Ok(census)) => {
                let symbols = bed.journal.symbols();
                let left = census.leftovers(before);
                let left = left.iter().filter(|left| !matches!(left, Leftover::Process(_)));
                let layout = sandbox.layout();
                let roots: Vec<&Path> =
                    other.iter().map(|(root, _)| root.as_path()).chain([layout.root()]).collect();
                let is_a_nodes = |left: &Leftover| {
                    roots.iter().any(|root| is_the_nodes_own(left, root, bed.driver_name()))
                };
                // A mount that fails on order holds the driver's state and is unmounted after the driver has ended.
                let is_of_state = |left: &Leftover| {
                    let Leftover::Mount { mount, .. } = left else { return false };
                    bed.state_can_fail() && mount.target == layout.driver_state()
                };
                let left: Vec<_> = left.filter(|left| !is_a_nodes(left) && !is_of_state(left)).collect();
                let is_own = |left: &&&Leftover| match left {
                    Leftover::Mount { mount, .. } => !roots.iter().any(|root| mount.target.starts_with(root)),
                    _ => false,
                };
                self.mounts =
                    left.iter().filter(is_own).map(|left| symbols.text(&left.to_string())).collect();
                self.left_behind.extend(left.iter().map(|left| symbols.text(&left.to_string())));
            }
            (_, Err(error)) => self.unchecked.push(format!("leftovers: {error}")),
            (None, Ok(_)) => self.unchecked.push("leftovers: nothing was counted before the case".to_owned()),
        }
    }

    /// Counts the processes that still run after node and driver have ended: those are leftovers.
    async fn count_processes(&mut self, before: Option<&Census>) {
        let Some(before) = before else { return };
        let began = Instant::now();
        let left = loop {
            let Ok(now) = Census::of(&[]) else { return };
            let mut left = now.leftovers(before);
            left.retain(|left| matches!(left, Leftover::Process(_)));
            let unburied = |left: &Leftover| matches!(left, Leftover::Process(process) if process.zombie);
            let is_awaited = left.iter().any(unburied) || !left.is_empty() && began.elapsed() < LAST_CHILD;
            if !is_awaited || began.elapsed() > BURIAL {
                break left;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        self.left_behind.extend(left.iter().take(PROCESSES).map(ToString::to_string));
        if left.len() > PROCESSES {
            self.left_behind.push(format!("process … and {} more", left.len() - PROCESSES));
        }
    }

    async fn check_books(&mut self, bed: &Bed) {
        match bed.books().await {
            Ok(None) => {}
            Ok(Some(Books::Endless(endless))) => {
                let cause = endless.cause("ListVolumes");
                self.findings.push(judge::promise_broken("DRV-024", "ListVolumes", &cause));
            }
            Ok(Some(Books::Listed(volumes))) => {
                let line = |volume| format!("volume {volume} is still in the driver's books (ListVolumes)");
                self.left_behind.extend(volumes.into_iter().map(line));
            }
            Err(chain) => self.unchecked.push(format!("the driver's books: {}", chain.join(": "))),
        }
    }

    /// Returns the kernel's messages about the devices of this case, and finds the defects among them.
    ///
    /// Cases run concurrently, and a message does not name its case. A message that names none of this case's devices is left
    /// out.
    fn read_kernel_log(
        &mut self,
        log: Result<KernelLog, KernelLogError>,
        devices: &BTreeSet<String>,
    ) -> Vec<Message> {
        let messages = log.and_then(|mut log| log.read()).unwrap_or_else(|error| {
            self.unchecked.push(format!("the kernel's log: {error}"));
            vec![]
        });
        let ours = |named: &BTreeSet<String>| named.iter().any(|device| devices.contains(device));
        let about: Vec<Message> =
            messages.iter().filter(|message| ours(&devices_named(&message.text))).cloned().collect();
        self.kernel
            .extend(splats(&messages).iter().filter(|splat| ours(&splat.devices)).map(ToString::to_string));
        about
    }

    fn scan_for_secrets(&mut self, secrets: &[Sensitive<String>], files: &[&str], directory: &Path) {
        let secrets: Vec<&str> = secrets.iter().map(|secret| secret.reveal().as_str()).collect();
        for file in files.iter().filter(|file| !file.is_empty()) {
            match logs::contains_any(&directory.join(file), &secrets) {
                Ok(true) => self.findings.push(judge::secret_in_log(file)),
                Ok(false) => {}
                Err(error) => self.unchecked.push(format!("secrets in `{file}`: {error}")),
            }
        }
        for promise in [judge::SECRETS, judge::NO_SECRET_IN_CONTEXT] {
            if !secrets.is_empty() && !self.findings.iter().any(|finding| finding.contract == promise) {
                self.judged.kept.insert(promise.to_owned());
            }
        }
    }
}

/// What is known at the end of a case beside its journal.
#[derive(Debug)]
pub(super) struct Records {
    /// The kernel's messages about the devices of the case.
    messages: Vec<Message>,
    /// The moment at which the trace began, in milliseconds since boot.
    zero: f64,
}

impl Records {
    /// Writes the journals and logs of the case. Returns an error text for each that could not be written.
    fn write(&self, bed: &Bed, orders: &Orders) -> Vec<String> {
        let directory = &orders.directory;
        let mut unwritten = Vec::new();
        let text: String = (self.messages.iter())
            .map(|message| format!("{:>14.6} {}\n", message.micros as f64 / 1e6, message.text))
            .collect();
        if let Err(error) = logs::keep(directory, "kernel.log", &text) {
            unwritten.push(format!("the kernel's log: {error}"));
        }
        if let Err(error) = moments::write(directory, &self.messages, self.zero) {
            unwritten.push(format!("the moments of the logs: {error}"));
        }
        if let Err(error) = bed.journal.write(directory) {
            unwritten.push(format!("the journal: {error}"));
        }
        if let Some(other) = bed.other()
            && let Err(error) = write_other(other, directory)
        {
            unwritten.push(format!("the journal of {}: {error}", other.name()));
        }
        unwritten
    }

    /// As [`Self::write`], and masks the secrets in all of it, where it is not searched for them.
    pub(super) fn write_masked(&self, bed: &Bed, orders: &Orders) -> Vec<String> {
        let mut unwritten = self.write(bed, orders);
        unwritten.extend(unhidden(bed, orders));
        unwritten
    }
}

/// Masks the secrets in the logs of a case. Returns an error text for each log in which they could not be masked.
fn unhidden(bed: &Bed, orders: &Orders) -> Vec<String> {
    let unhidden = logs::hide_secrets(&orders.directory, bed.journal.masks());
    unhidden.iter().map(|file| format!("secrets could not be hidden in {file}")).collect()
}

/// Writes the other node's journal into a directory of its own.
fn write_other(other: &OtherNode, directory: &Path) -> anyhow::Result<()> {
    let directory = directory.join(other.name());
    std::fs::create_dir_all(&directory)?;
    Ok(other.journal.write(&directory)?)
}

/// Whether a leftover is a directory that a node makes once for all volumes and keeps, without other entries.
fn is_the_nodes_own(left: &Leftover, root: &Path, driver: &str) -> bool {
    let Leftover::File(top) = left else { return false };
    let csi = root.join("plugins/kubernetes.io/csi");
    let devices = csi.join("volumeDevices");
    let local = [
        root.join("plugins/kubernetes.io/local-volume/mounts"),
        root.join("plugins/kubernetes.io~local-volume/volumeDevices"),
    ];
    let kept = [csi.join(driver), devices.join("publish"), devices.join("staging"), devices.clone(), csi];
    let kept: Vec<_> = kept.into_iter().chain(local).collect();
    let is_kept = |path: &Path| kept.iter().any(|kept| kept.starts_with(path));
    let mut todo = vec![top.clone()];
    while let Some(path) = todo.pop() {
        // A path that cannot be read is no such directory.
        let Ok(entries) = std::fs::read_dir(&path) else { return false };
        if !is_kept(&path) {
            return false;
        }
        todo.extend(entries.flatten().map(|entry| entry.path()));
    }
    true
}

/// The breakage for a cause that was seen after the last step.
pub(super) fn at_the_end(cause: String, at: Place) -> Breakage {
    Breakage { after: String::new(), at, expected: None, actual: None, cause: vec![cause], event: None }
}
