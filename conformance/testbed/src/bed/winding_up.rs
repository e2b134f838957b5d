//! The end of a case, passed or failed: everything is taken down as in a cluster, so that the rest is a leftover of the
//! node or the driver.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use api::Attachment;
use contracts::event::Event;
use csi_proto::v1::controller_client::ControllerClient;
use csi_proto::v1::identity_client::IdentityClient;
use csi_proto::v1::node_client::NodeClient;
use csi_proto::v1::{GetPluginInfoRequest, ListVolumesRequest, NodeGetInfoRequest};
use harness::driver::{Exit, Lost};
use harness::guard::Guard;
use harness::load;
use harness::manifest::Timeouts;
use harness::proxy::within;
use tonic::Status;

use super::Bed;
use crate::dead_end::NotUndone;
use crate::failure::chain;
use crate::foreign::Foreign;
use crate::pages::{Endless, Pages};

/// The time limit of the end after a case that was not cut short.
const PATIENCE: Duration = Duration::from_secs(15);

/// The time limit after a case that failed: what it waited for will not come now.
const IMPATIENCE: Duration = Duration::from_secs(3);

/// The time limit of one call to the driver.
const CALL: Duration = Duration::from_secs(10);

/// The time for a process to end whose socket is closed.
const ENDING: Duration = Duration::from_secs(5);

/// The time to see that a process has died whose socket still answers.
const CLOSING: Duration = Duration::from_millis(100);

/// The driver's own list of its volumes.
#[derive(Debug)]
pub enum Books {
    /// The volumes of this case that are in it, by name.
    Listed(Vec<String>),
    /// It does not end.
    Endless(Endless),
}

impl Bed {
    /// The exit of a driver that the case has not ended.
    pub async fn driver_exit(&self) -> Option<String> {
        self.driver_crash().await.map(super::ended_by_itself)
    }

    /// The exit of a driver that the case has not ended, and whose closed socket shows that it is ending.
    pub async fn exit_under_way(&self) -> Option<Exit> {
        if self.driver_is_killed() || !self.has_driver() {
            return None;
        }
        let socket = self.driver().lock().await.socket().to_owned();
        // A process that is killed closes what it has open one by one, and the socket that it listens at may be the last.
        let limit = if tokio::net::UnixStream::connect(&socket).await.is_ok() { CLOSING } else { ENDING };
        tokio::time::timeout(limit, self.driver_crashes()).await.ok()
    }

    /// Deletes every pod, waits until the node is at rest, then deletes every volume. Says what would not go.
    pub async fn wind_up(&self, failed: bool) -> Vec<String> {
        let end = Instant::now() + patience(failed);
        self.proxy().clear("");
        if self.made.repeats.get() && !failed {
            self.repeat_every_call();
        }
        self.made.gates.take().into_values().for_each(|gate| gate.open());
        self.end_disk_faults();
        self.end_hung_daemons();
        self.state_recovers();
        if self.driver_is_killed()
            && let Err(error) = self.start_driver().await
        {
            return vec![format!("the driver does not start again: {}", chain(&error).join(": "))];
        }
        if !self.node.is_running()
            && let Err(error) = self.node.restart().await
        {
            return vec![format!("the node does not start again: {}", chain(&error).join(": "))];
        }
        if let Some(down) = self.other_is_up().await {
            return vec![down];
        }
        let left = self.pods_leave(end).await;
        if !left.is_empty() {
            // A volume that is still in use cannot be deleted, and to say so of each would bury the reason.
            return left;
        }
        if let Some(attached) = self.attachments_leave(end).await {
            return vec![attached];
        }
        let undone = self.undo_node_calls(failed).await;
        if !undone.is_empty() {
            return undone;
        }
        // Before the volumes: with them a driver may let go of what it should have let go of earlier.
        self.look_at_driver().await;
        let handles: Vec<String> =
            self.made.volumes.borrow().values().map(|made| made.handle.clone()).collect();
        let mut left = self.volumes_leave().await;
        if left.is_empty() && self.abilities.creates() {
            self.look_at_remains(&handles).await;
        }
        left.extend(self.machine_leaves());
        left.extend(self.end_nfs().await);
        left
    }

    async fn pods_leave(&self, end: Instant) -> Vec<String> {
        let mut left = Vec::new();
        let pods: Vec<String> = self.made.pods.borrow().iter().cloned().collect();
        for pod in pods {
            if let Err(error) = self.remove_pod(&pod).await {
                left.push(format!("pod {pod}: {error:?}"));
            }
        }
        let leaving: Vec<String> = self.made.leaving.borrow().iter().cloned().collect();
        for pod in leaving {
            let (node, journal) = (self.node_of(&pod), self.journal_of(&pod));
            if let Err(waited) = self.until(journal, end, |limit| node.wait_gone(&pod, limit)).await {
                self.note_not_undone(waited.not_undone());
                left.push(format!("pod {pod}: {}", waited.lines().join(": ")));
            }
        }
        let node = &self.node;
        let idle = self.until(&self.journal, end, |limit| node.wait_idle(limit)).await;
        left.extend(self.other_rests(end).await);
        if let Err(waited) = idle {
            self.note_not_undone(waited.not_undone());
            left.push(waited.lines().join(": "));
        }
        if left.is_empty() {
            left.extend(self.stages_leave(end).await);
        }
        left
    }

    /// Waits for the volumes that have to be unstaged once more. Those with an attachment are waited for by it, too.
    async fn stages_leave(&self, end: Instant) -> Vec<String> {
        let nodes = std::iter::once((&self.node, &self.journal));
        let nodes = nodes.chain(self.other().map(|other| (&other.node, &other.journal)));
        let mut left = Vec::new();
        for (node, journal) in nodes {
            let Err(waited) = self.until(journal, end, |limit| node.wait_unstaged(limit)).await else {
                continue;
            };
            // CSI lets a driver answer NOT_FOUND for a volume that was deleted meanwhile: the rules judge that.
            if node.has_staged().await.unwrap_or(true) {
                self.note_not_undone(waited.not_undone());
                left.push(waited.lines().join(": "));
            }
        }
        left
    }

    /// Returns when no volume is attached.
    pub(super) async fn detached(&self) {
        while !self.api_server.list::<Attachment>().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Notes the first call that is waited for in vain.
    fn note_not_undone(&self, call: Option<NotUndone>) {
        let mut noted = self.made.not_undone.borrow_mut();
        if noted.is_none() {
            *noted = call;
        }
    }

    async fn attachments_leave(&self, end: Instant) -> Option<String> {
        tokio::select! {
            biased;
            () = self.detached() => None,
            refused = self.dead_end(&self.journal) => {
                self.note_not_undone(refused.not_undone());
                Some(format!("a volume is still attached; {refused}"))
            }
            () = tokio::time::sleep_until(end.into()) => Some("a volume is still attached".to_owned()),
        }
    }

    async fn volumes_leave(&self) -> Vec<String> {
        let mut left = self.cluster_leaves().await;
        let volumes: Vec<String> = self
            .made
            .volumes
            .borrow()
            .keys()
            .filter(|claim| !self.made.cluster.has_made(claim))
            .cloned()
            .collect();
        let is_copy = |volume: &String| self.made.copies.borrow().volumes.contains(volume);
        let (copies, originals): (Vec<String>, Vec<String>) = volumes.into_iter().partition(is_copy);
        // A driver may keep a snapshot as long as there are copies of it, and a volume as long as it has snapshots.
        left.extend(self.delete_volumes(copies).await);
        left.extend(self.delete_snapshots().await);
        left.extend(self.delete_volumes(originals).await);
        left
    }

    /// [`CALL`], and longer for a driver that its manifest calls slow, or that has been.
    fn limit_of_deletion(&self) -> Duration {
        let said = self.manifest().call_timeout();
        let said = Some(said).filter(|said| *said > Timeouts::default().call.duration()).unwrap_or_default();
        CALL.max(said).max(self.slowness(&self.journal))
    }

    async fn delete_volumes(&self, volumes: Vec<String>) -> Vec<String> {
        let mut left = Vec::new();
        for volume in volumes {
            let of_other = self.other().filter(|_| self.made.of_other.borrow().contains(&volume));
            let provisioner = of_other.map_or(&self.provisioner, |other| &other.provisioner);
            match load::within(self.limit_of_deletion(), provisioner.delete(&volume)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => left.push(format!("volume {volume}: {}", chain(&error).join(": "))),
                // Each further one would take as long.
                Err(late) => {
                    left.push(format!("volume {volume}: DeleteVolume is not answered"));
                    if !late.is_cut_short {
                        self.note_unanswered_call("DeleteVolume");
                    }
                    break;
                }
            }
        }
        left
    }

    /// Nothing may be mounted on what the machine has given any more.
    fn machine_leaves(&self) -> Vec<String> {
        let closed = self.disks.close();
        let closed = closed.chain(self.fuse.take().map(Guard::close));
        let closed = closed.chain(self.machine.take().map(Guard::close));
        let left = closed.filter_map(|closed| closed.err().map(|error| chain(&error).join(": ")));
        left.chain(self.remove_flex_volume_drivers()).collect()
    }

    /// Has the driver say once more who it is and which node it is on: the rules hold that against the first time.
    pub async fn introduce_again(&self, failed: bool) -> Result<(), Vec<String>> {
        let limit = if failed { IMPATIENCE } else { CALL };
        let channel = self.proxy().channel().map_err(|error| chain(&error))?;
        let failed = |status: Status| vec![status.message().to_owned()];
        let mut identity = IdentityClient::new(channel.clone());
        identity.get_plugin_info(within(GetPluginInfoRequest {}, limit)).await.map_err(failed)?;
        NodeClient::new(channel).node_get_info(within(NodeGetInfoRequest {}, limit)).await.map_err(failed)?;
        Ok(())
    }

    /// The volumes of this case that are still in the driver's own books; nothing if it keeps none.
    pub async fn books(&self) -> Result<Option<Books>, Vec<String>> {
        if !self.abilities.lists() {
            return Ok(None);
        }
        let channel = self.proxy().channel().map_err(|error| chain(&error))?;
        let mut client = ControllerClient::new(channel);
        let (mut listed, mut pages) = (BTreeSet::new(), Pages::default());
        loop {
            let starting_token = pages.token().to_owned();
            let request = ListVolumesRequest { max_entries: 0, starting_token };
            let page = client.list_volumes(within(request, CALL)).await;
            let page = page
                .map_err(|status| vec![format!("ListVolumes failed: {}", status.message())])?
                .into_inner();
            listed.extend(page.entries.into_iter().filter_map(|entry| Some(entry.volume?.volume_id)));
            match pages.follow(&page.next_token) {
                Ok(true) => {}
                Ok(false) => break,
                Err(endless) => return Ok(Some(Books::Endless(endless))),
            }
        }
        let volumes = self.made.volumes.borrow();
        let ours = volumes.iter().filter(|(_, made)| listed.contains(&made.handle));
        Ok(Some(Books::Listed(ours.map(|(name, _)| name.clone()).collect())))
    }

    /// The loop devices of a driver from outside that are still attached.
    pub fn foreign_loops(&self) -> Vec<String> {
        self.foreign.as_ref().map(Foreign::left_behind).unwrap_or_default()
    }

    /// The loop devices that appeared in any mount of this case, by name.
    pub fn devices(&self) -> BTreeSet<String> {
        let mut devices = BTreeSet::new();
        for line in self.journal.trace() {
            let Event::MountAdd(mount) = line.event else { continue };
            let numbers = [Some(mount.dev), mount.rdev].into_iter().flatten();
            devices.extend(numbers.filter_map(|number| Some(format!("loop{}", number.strip_prefix("7:")?))));
        }
        devices
    }

    /// Ends the node, then the driver. Says what of the driver's directory would not go.
    pub async fn end(&self, failed: bool) -> Option<String> {
        // A process that waits for a file system without an answer cannot be killed: the file system has to die first.
        if let Some(fuse) = self.fuse.borrow_mut().as_mut() {
            drop(fuse.die());
        }
        // A driver that has ignored SIGTERM once is not given time again.
        let within = if self.abilities.outlives_sigterm { Duration::ZERO } else { patience(failed) };
        if let Some(other) = self.other() {
            other.end(within).await;
        }
        self.state_recovers();
        self.testbed.end(within).await;
        self.end_failing_state()
    }

    /// Brings the parts of the driver's log together, and returns how much of the output is not in it.
    pub async fn finish_log(&self) -> Lost {
        self.driver().lock().await.finish_log()
    }
}

fn patience(failed: bool) -> Duration {
    if failed { IMPATIENCE } else { PATIENCE }
}

/// The time left; never zero, so that an event that has already happened is always seen.
pub(super) fn left_until(end: Instant) -> Duration {
    end.saturating_duration_since(Instant::now()).max(Duration::from_millis(100))
}
