//! Manifests while they are played: what happens is told and judged as it happens, changed files are applied, and at last
//! everything is taken down.

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
use super::world::World;
use super::{CHANGED, ENOUGH, TRACE, write};

/// How long pods may take to get their volumes where everything is taken down after that: as long as the kubelet waits
/// for them at once.
const PATIENCE: Duration = Duration::from_secs(123);

/// The pause between two looks for news.
const LOOK: Duration = Duration::from_millis(100);

/// One play of manifests.
pub(super) struct Session<'a> {
    pub(super) world: World,
    voice: &'a Voice,
    findings: Findings,
    containers: Containers,
    pub(super) files: Files,
    played: Played,
    /// Whether it was told that all pods have their volumes, or which have not.
    is_told: bool,
    driver_is_lost: bool,
}

/// Gives the pods of manifests what they ask for until it was seen enough.
pub(super) async fn play(
    orders: &Orders,
    sandbox: &Sandbox,
    manifests: &Manifests,
    voice: &Voice,
) -> anyhow::Result<Played> {
    let files = Files::parse(&manifests.files).map_err(|(name, bad)| anyhow::anyhow!("{name}: {bad}"))?;
    let mut world = World::put_up(orders, sandbox, &files.scenario, Some(&files)).await?;
    voice.hide(world.journal.masks().clone());
    world.claims_are_bound().await;
    world.add_all().map_err(|chain| anyhow::anyhow!(chain.join(": ")))?;
    let mut session = Session {
        world,
        voice,
        findings: Findings::default(),
        containers: Containers::new(orders, sandbox, manifests.inside.is_some()),
        files,
        played: Played::default(),
        is_told: false,
        driver_is_lost: false,
    };
    session.go_on(orders, manifests).await;
    session.take_down(orders).await
}

impl Session<'_> {
    pub(super) fn tell(&self, line: impl Into<String>) {
        self.voice.say(&Said::Told(line.into()));
    }

    /// Looks and tells until it was seen enough.
    async fn go_on(&mut self, orders: &Orders, manifests: &Manifests) {
        let (enough, changed) = (orders.directory.join(ENOUGH), orders.directory.join(CHANGED));
        // Without a limit it is for the person who looks on to say how long; the other half is for taking down.
        let limit = (manifests.once || manifests.inside.is_some()).then(|| PATIENCE.min(orders.timeout / 2));
        let begun = Instant::now();
        while !enough.exists() && !self.driver_is_lost {
            tokio::time::sleep(LOOK).await;
            if let Ok(text) = std::fs::read_to_string(&changed) {
                drop(std::fs::remove_file(&changed));
                self.apply(&text).await;
            }
            self.tell_news().await;
            if !self.is_told && self.world.all_mounted().await {
                self.settle().await;
                if let Some(inside) = &manifests.inside {
                    return self.run_inside(inside).await;
                }
                self.voice.say(&Said::Ready);
            }
            if !self.is_told && limit.is_some_and(|limit| begun.elapsed() >= limit) {
                self.played.failures.push(self.world.not_ready(begun.elapsed()).await);
                return;
            }
        }
    }

    /// Tells what has happened, and what was broken by that.
    async fn tell_news(&mut self) {
        for line in self.world.news().await {
            self.tell(line);
        }
        let mut found = self.findings.since(&self.world.journal);
        if !self.driver_is_lost
            && let Some(exit) = self.world.driver_crash().await
        {
            self.driver_is_lost = true;
            found.extend(self.findings.driver_ended(&format!("The driver has ended by itself: {exit}.")));
        }
        self.found(found);
    }

    fn found(&self, found: Vec<Finding>) {
        found.into_iter().for_each(|finding| self.voice.say(&Said::Found(Box::new(finding))));
    }

    /// The node says that all pods have their volumes: starts their containers, and tells what the kernel shows.
    async fn settle(&mut self) {
        // How they came by them is told before, whatever has happened since the last look.
        self.tell_news().await;
        self.is_told = true;
        let mut lacking = match self.world.unseen_volumes().await {
            Ok(unseen) => unseen,
            Err(error) => vec![format!("the mount table cannot be read: {error:#}")],
        };
        let mut given = Vec::new();
        for pod in self.world.pods.clone() {
            if !self.containers.has(&pod) {
                match self.containers.start(&self.world, &pod).await {
                    Ok(lines) => given.extend(lines),
                    Err(why) => lacking.push(why),
                }
            }
        }
        self.tell_news().await;
        let head = if lacking.is_empty() {
            "all pods have their volumes"
        } else {
            "not all pods have their volumes"
        };
        self.tell(head);
        lacking.iter().for_each(|line| self.tell(format!("  {line}")));
        for line in self.world.places().await.into_iter().chain(given) {
            self.tell(line);
        }
        if !lacking.is_empty() {
            self.played.failures.push(format!("{head}: {}", lacking.join("; ")));
        }
    }

    /// Asks again for all pods, after something has changed.
    pub(super) fn look_again(&mut self) {
        self.is_told = false;
    }

    /// Ends the containers of a pod, which is about to go.
    pub(super) fn end_containers(&mut self, pod: &str) {
        let left = self.containers.end(pod);
        self.played.left.extend(left);
    }

    /// Runs a program in a container to its end. Beside a shell nothing is told meanwhile.
    async fn run_inside(&mut self, inside: &Inside) {
        let Self { world, containers, voice, findings, .. } = self;
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
                    for finding in findings.since(&world.journal) {
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

    /// Takes everything down in the order of a node, and judges all of it.
    async fn take_down(mut self, orders: &Orders) -> anyhow::Result<Played> {
        for pod in self.world.pods.clone() {
            self.end_containers(&pod);
        }
        if !self.driver_is_lost {
            let left = self.world.take_down_pods().await;
            self.played.left.extend(left);
        }
        self.tell_news().await;
        // Nothing more is waited for: what news leaves out while something is under way is told now.
        let story = self.world.last_story();
        story.lines().for_each(|line| self.tell(line.to_owned()));
        write(&orders.directory.join(TRACE), &self.world.finish().await)?;
        // Where pods do not go, all that they have stays, and is no more news; the sandbox's end takes it.
        if !self.driver_is_lost && self.played.left.is_empty() {
            self.played.left = self.world.take_down().await;
        }
        let rest = (!self.driver_is_lost && self.played.left.is_empty()).then(Rest::default);
        let found = self.findings.at_the_end(&self.world.journal, rest.as_ref()).await;
        self.found(found);
        Ok(self.played)
    }
}
