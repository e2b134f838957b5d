//! A second node: pods on it, pods that move between the two, and the loss of it.

use std::panic::Location;
use std::rc::Rc;
use std::time::Duration;

use expect_test::Expect;
use serde_json::{Value, json};

use super::node_calls::attach_request;
use super::{Cx, Pod, PodBuilder, Shared, Volume, VolumeBuilder};
use crate::failure::{Result, place};

/// The node beside the first one.
#[derive(Debug)]
pub struct OtherNode {
    shared: Rc<Shared>,
}

impl Cx {
    /// Starts a second node with a driver of its own, beside the first.
    #[track_caller]
    pub fn other_node(&self) -> impl Future<Output = Result<OtherNode>> {
        let doing = self.shared.begin("cx.other_node()", Location::caller());
        async move {
            let added = async {
                self.shared.bed.add_other_node().await?;
                Ok(self.shared.bed.the_other()?.driver_node_id().await)
            };
            let id = doing.done(added.await)?;
            let own = self.call("NodeGetInfo", json!({})).await?.text("/nodeId").to_owned();
            let cause = format!("The drivers of two nodes answered the same node_id, `{own}`.");
            self.keeps("DRV-005", "NodeGetInfo", own != id, &cause)?;
            Ok(OtherNode { shared: self.shared() })
        }
    }

    /// Waits by the machine's clock, which no time of the cluster moves: a driver may count in seconds, and a kernel may
    /// need a moment for what passes by itself.
    #[track_caller]
    pub fn waits(&self, time: Duration) -> impl Future<Output = ()> {
        self.shared.begin(&format!("cx.waits({} s)", time.as_secs()), Location::caller());
        tokio::time::sleep(time)
    }

    /// Lets so much time pass at once, in the cluster and on its nodes: what waits for so long is over.
    #[track_caller]
    pub fn time_passes(&self, by: Duration) -> impl Future<Output = Result> {
        let doing = self.shared.begin(&format!("cx.time_passes({} s)", by.as_secs()), Location::caller());
        async move { doing.done(self.shared.bed.time_passes(by).await) }
    }
}

impl OtherNode {
    /// The request that attaches a volume to this node.
    #[track_caller]
    pub fn attach_request(&self, volume: &Volume) -> impl Future<Output = Result<Value>> + use<> {
        let caller = Location::caller();
        let doing = self.shared.begin(&format!("other.attach_request(\"{}\")", volume.name), caller);
        let (shared, fields) = (Rc::clone(&self.shared), self.shared.bed.volume_fields(&volume.name));
        async move {
            let fields = doing.done(fields)?;
            let other = doing.done(shared.bed.the_other())?;
            Ok(attach_request(&fields, &other.driver_node_id().await))
        }
    }

    /// A volume, to be made by the driver of this node.
    pub fn volume(&self, name: &str) -> VolumeBuilder {
        VolumeBuilder::new(Rc::clone(&self.shared), name).on_other_node()
    }

    /// A pod, to be given to this node.
    pub fn pod(&self, name: &str) -> PodBuilder {
        PodBuilder::new(Rc::clone(&self.shared), name).on_other_node()
    }

    /// Ends the node's machine at once: its mounts are gone, the files on its disk stay, and the cluster marks it as not
    /// ready.
    #[track_caller]
    pub fn is_lost(&self) -> impl Future<Output = Result> {
        let doing = self.shared.begin("other.is_lost()", Location::caller());
        async move { doing.done(self.shared.bed.lose_other().await) }
    }

    /// Starts the node's machine again.
    #[track_caller]
    pub fn comes_back(&self) -> impl Future<Output = Result> {
        let doing = self.shared.begin("other.comes_back()", Location::caller());
        async move { doing.done(self.shared.bed.other_comes_back().await) }
    }

    /// The node is declared out of service.
    #[track_caller]
    pub fn is_declared_gone(&self) -> Result {
        let doing = self.shared.begin("other.is_declared_gone()", Location::caller());
        doing.done(self.shared.bed.declare_out_of_service(true))
    }

    /// Compares everything that happened on this node since the last look with the story of the case.
    #[track_caller]
    pub fn sees(&self, story: Expect) -> impl Future<Output = Result> {
        let at = place(Location::caller());
        async move {
            let bed = &self.shared.bed;
            let pending = bed.settle().await;
            let other = bed.other().expect("this is a handle on it");
            self.shared.compare_story(&story, &other.journal.look(), pending, at)
        }
    }
}

impl Pod {
    /// Stops it and starts it on the other node, under the same name and with the same volumes.
    #[track_caller]
    pub fn moves_to(&self, _other: &OtherNode) -> impl Future<Output = Result<Pod>> {
        let stopped = self.stop();
        let started = PodBuilder::of(self).on_other_node().start();
        async move {
            stopped.await?;
            started.await
        }
    }

    /// Takes its object away by force, as is done with pods of a node that is lost.
    #[track_caller]
    pub fn is_taken_away(&self) -> impl Future<Output = Result> {
        let doing = self.begin("is_taken_away()", Location::caller());
        async move { doing.done(self.shared.bed.forget_pod(&self.spec.name).await) }
    }
}
