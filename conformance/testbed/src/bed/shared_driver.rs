//! Several cases on one driver: the testbed of a case that has left nothing behind, for the next one.

use api::{Attachment, Claim, Pod, Snapshot, Volume};
use harness::sandbox::Sandbox;

use super::{Bed, Made};
use crate::foreign;
use crate::message::Orders;

impl Bed {
    /// Begins another case with only the driver and the node of the case before. Call it when that was judged and
    /// [`Bed::left_over`] finds nothing.
    ///
    /// The new trace begins with the lines of the driver's start, as that of every case, and its volumes have the names
    /// that they would have if the case ran alone.
    #[must_use]
    pub fn next_case(self, orders: &Orders, sandbox: &Sandbox) -> Self {
        let limit = orders.timeout.mul_f64(0.5);
        let directory = orders.directory.clone();
        let mut bed = Self { made: Made::default(), seed: orders.seed, limit, directory, ..self };
        bed.testbed.provisioner.set_tag(foreign::tag(orders, sandbox));
        bed.journal.rewind(bed.beginning);
        bed.remember_driver();
        bed
    }

    /// The leftover of this case that the next one would find.
    pub fn left_over(&self) -> Option<&'static str> {
        let api = &self.api_server;
        let has_objects = !api.list::<Claim>().is_empty()
            || !api.list::<Volume>().is_empty()
            || !api.list::<Pod>().is_empty()
            || !api.list::<Attachment>().is_empty()
            || !api.list::<Snapshot>().is_empty();
        let left = [
            (has_objects, "an object"),
            (!self.journal.in_flight().is_empty(), "a call to the driver"),
            (!self.containers.borrow().is_empty(), "a container"),
            (self.other().is_some(), "the other node"),
            (self.failing_state.borrow().is_some(), "the driver's directory, which can fail,"),
            (self.made.cluster.runs(), "a controller"),
            (!self.node.is_running() || self.driver_is_killed(), "the end of the node or the driver"),
        ];
        left.into_iter().find_map(|(is_left, noun)| is_left.then_some(noun))
    }
}
