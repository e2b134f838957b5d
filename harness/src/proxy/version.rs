//! Whether a driver serves an older version of CSI. It calls the driver, and touches nothing else.

use std::time::Duration;

use bytes::Bytes;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;

use super::codec::Raw;
use super::within;

/// Whether the driver answers the first question of CSI 0, whose services are in a package of another name.
pub(crate) async fn serves_csi_0(channel: Channel, limit: Duration) -> bool {
    let path = PathAndQuery::from_static("/csi.v0.Identity/GetPluginInfo");
    let mut grpc = Grpc::new(channel);
    grpc.ready().await.is_ok() && grpc.unary(within(Bytes::new(), limit), path, Raw).await.is_ok()
}
