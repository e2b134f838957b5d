//! Zones of nodes and volumes.

use csi_proto::v1;

/// The key of a zone among topology segments.
pub(crate) const ZONE_KEY: &str = "topology.fake.csi.volproof.dev/zone";

/// A zone as a topology of CSI.
pub(crate) fn of(zone: &str) -> v1::Topology {
    v1::Topology { segments: [(ZONE_KEY.to_owned(), zone.to_owned())].into() }
}
