//! A play of manifests: prints and judges events as they happen, applies changed files, and at the end takes down all
//! pods and volumes.

use std::time::{Duration, Instant};

use contracts::rule::Rest;
use harness::sandbox::Sandbox;
use runner::finding::Finding;
use runner::message::{Inside, Manifests, Played, Said};
use runner::played::Findings;
use runner::worker::Voice;
use testbed::failure::chain;
use testbed::message::Orders;

use super::containers::Containers;
use super::files::Files;
use super::live::NO_IMAGE;
use super::other_node::OTHER;
use super::world::World;
use super::{CHANGED, ENOUGH, TRACE, write};

/// The time limit for pods to get their volumes, as long as that of the kubelet.
const PATIENCE: Duration = Duration::from_secs(123);

/// The time that is kept for the report of a play which ends at its deadline.
const REPORTING: Duration = Duration::from_secs(1);

/// The pause between two looks for news.
const LOOK: Duration = Duration::from_millis(100);

pub(super) struct Session<'a> {
    pub(super) world: World,
    voice: &'a Voice,
    findings: Findings,
    /// The findings of the second node.
    other_findings: Findings,
    containers: Containers,
    pub(super) files: Files,
    played: Played,
    /// Whether the result was printed: that all pods have their volumes, or that some lack them.
    is_settled: bool,
    driver_is_lost: bool,
}

/// Plays manifests until the user ends the play.
pub(super) async fn play(
    orders: &Orders,
    sandbox: &Sandbox,
    manifests: &Manifests,
    voice: &Voice,
) -> anyhow::Result<Played> {
    let begun = Instant::now();
    let files = Files::parse(&manifests.files).map_err(|(name, bad)| anyhow::anyhow!("{name}: {bad}"))?;
    let mut world = World::put_up(orders, sandbox, &files.scenario, Some(&files)).await?;
    voice.hide(world.journal.masks().clone());
    world.start_second_node().await?;
    world.claims_are_bound().await;
    world.add_all().map_err(|chain| anyhow::anyhow!(chain.join(": ")))?;
    let mut session = Session {
        world,
        voice,
        findings: Findings::default(),
        other_findings: Findings::default(),
        containers: Containers::new(orders, sandbox, manifests.inside.is_some()),
        files,
        played: Played::default(),
        is_settled: false,
        driver_is_lost: false,
    };
    session.follow(orders, manifests).await;
    // These failures and the trace are reported even if the driver hangs and the teardown does not end in time.
    let mut failures = session.played.failures.clone();
    let journal = session.world.journal.clone();
    let time_left = orders.timeout.saturating_sub(begun.elapsed() + REPORTING);
    match tokio::time::timeout(time_left, session.take_down(orders)).await {
        Ok(played) => played,
        Err(_late) => {
            write(&orders.directory.join(TRACE), &journal.jsonl())?;
            let under_way = journal.in_flight().join(", ");
            let calls =
                if under_way.is_empty() { String::new() } else { format!("; under way: {under_way}") };
            let seconds = orders.timeout.as_secs_f64();
            failures.push(format!(
                "the pods and their volumes were not taken down within {seconds} s (--timeout gives more time){calls}"
            ));
            Ok(Played { failures, ..Played::default() })
        }
    }
}

impl Session<'_> {
    pub(super) fn print(&self, line: impl Into<String>) {
        self.voice.say(&Said::Told(line.into()));
    }

    /// Prints news until the user ends the play.
    async fn follow(&mut self, orders: &Orders, manifests: &Manifests) {
        let (enough, changed) = (orders.directory.join(ENOUGH), orders.directory.join(CHANGED));
        // A play that a user watches has no limit: the user ends it. Half of the timeout is kept for the teardown.
        let limit = (manifests.once || manifests.inside.is_some()).then(|| PATIENCE.min(orders.timeout / 2));
        let begun = Instant::now();
        while !enough.exists() && !self.driver_is_lost {
            tokio::time::sleep(LOOK).await;
            if let Ok(text) = std::fs::read_to_string(&changed) {
                drop(std::fs::remove_file(&changed));
                self.apply(&text).await;
            }
            self.tell_news().await;
            if !self.is_settled && self.world.all_mounted().await {
                self.settle().await;
                if let Some(inside) = &manifests.inside {
                    return self.run_inside(inside).await;
                }
                self.voice.say(&Said::Ready);
            }
            if !self.is_settled && limit.is_some_and(|limit| begun.elapsed() >= limit) {
                self.played.failures.push(self.world.not_ready(begun.elapsed()).await);
                return;
            }
        }
    }

    /// Prints the news and the findings in them.
    async fn tell_news(&mut self) {
        for line in self.world.news().await {
            self.print(line);
        }
        let mut found = self.findings.since(&self.world.journal);
        if let Some(other) = self.world.other_node() {
            found.extend(self.other_findings.since(&other.journal));
        }
        if !self.driver_is_lost
            && let Some(exit) = self.world.driver_crash().await
        {
            self.driver_is_lost = true;
            found.extend(self.findings.driver_ended(&format!("The driver has ended by itself: {exit}.")));
        }
        if !self.driver_is_lost
            && let Some(other) = self.world.other_node()
            && let Some(exit) = other.driver_exit().await
        {
            self.driver_is_lost = true;
            let sentence = format!("The driver of {OTHER} has ended by itself: {exit}.");
            found.extend(self.other_findings.driver_ended(&sentence));
        }
        self.print_findings(found);
    }

    fn print_findings(&self, findings: Vec<Finding>) {
        findings.into_iter().for_each(|finding| self.voice.say(&Said::Found(Box::new(finding))));
    }

    /// Starts the containers once all pods have their volumes, and prints the volumes that the kernel shows.
    async fn settle(&mut self) {
        // The events of the mounts are printed before the result.
        self.tell_news().await;
        self.is_settled = true;
        let mut lacking = match self.world.unseen_volumes().await {
            Ok(unseen) => unseen,
            Err(error) => vec![format!("the mount table cannot be read: {error:#}")],
        };
        let mut container_lines = Vec::new();
        for pod in self.world.pods.clone() {
            if !self.containers.has(&pod) {
                match self.containers.start(&self.world, &pod).await {
                    Ok(lines) => container_lines.extend(lines),
                    Err(why) => lacking.push(why),
                }
            }
        }
        self.tell_news().await;
        let paths = self.world.volume_paths().await;
        let head = match (lacking.is_empty(), paths.iter().any(|line| line.ends_with(NO_IMAGE))) {
            (true, false) => "all pods have their volumes",
            (true, true) => "all pods have their volumes, but for those of images",
            (false, _) => "not all pods have their volumes",
        };
        self.print(head);
        lacking.iter().for_each(|line| self.print(format!("  {line}")));
        paths.into_iter().chain(container_lines).for_each(|line| self.print(line));
        if !lacking.is_empty() {
            self.played.failures.push(format!("{head}: {}", lacking.join("; ")));
        }
    }

    /// Has the result printed again, once all pods have their volumes after a change.
    pub(super) fn unsettle(&mut self) {
        self.is_settled = false;
    }

    /// Ends the containers of a pod that is about to be deleted.
    pub(super) fn end_containers(&mut self, pod: &str) {
        let left = self.containers.end(pod);
        self.played.left.extend(left);
    }

    /// Runs a program in a container to its end. While a shell runs, nothing is printed.
    async fn run_inside(&mut self, inside: &Inside) {
        let Self { world, containers, voice, findings, other_findings, .. } = self;
        let container = match containers.find(world, inside) {
            Ok(container) => container,
            Err(why) => return self.played.failures.push(why),
        };
        let mut running = std::pin::pin!(container.run(inside.command.clone()));
        let ended = loop {
            tokio::select! {
                ended = &mut running => break ended,
                () = tokio::time::sleep(LOOK), if !inside.is_shell => {
                    for line in world.news().await {
                        voice.say(&Said::Told(line));
                    }
                    let mut found = findings.since(&world.journal);
                    if let Some(other) = world.other_node() {
                        found.extend(other_findings.since(&other.journal));
                    }
                    for finding in found {
                        voice.say(&Said::Found(Box::new(finding)));
                    }
                }
            }
        };
        match ended {
            Ok(code) => self.voice.say(&Said::Exited(code)),
            Err(error) => self.played.failures.push(chain(&error).join(": ")),
        }
    }

    /// Takes down pods and volumes in the order of a node, and judges the whole trace.
    async fn take_down(mut self, orders: &Orders) -> anyhow::Result<Played> {
        for pod in self.world.pods.clone() {
            self.end_containers(&pod);
        }
        if !self.driver_is_lost {
            let left = self.world.take_down_pods().await;
            self.played.left.extend(left);
        }
        self.tell_news().await;
        // `news` leaves out the story while a call is under way. No call is waited for any more: print the rest now.
        let story = self.world.last_story();
        story.lines().for_each(|line| self.print(line.to_owned()));
        write(&orders.directory.join(TRACE), &self.world.finish().await)?;
        // If pods are left, so are their volumes, which are not reported again. The end of the sandbox removes them.
        if !self.driver_is_lost && self.played.left.is_empty() {
            self.played.left = self.world.take_down().await;
        }
        let rest = (!self.driver_is_lost && self.played.left.is_empty()).then(Rest::default);
        let mut found = self.findings.at_the_end(&self.world.journal, rest.as_ref()).await;
        if let Some(other) = self.world.other_node() {
            found.extend(self.other_findings.at_the_end(&other.journal, rest.as_ref()).await);
        }
        self.print_findings(found);
        Ok(self.played)
    }
}
