//! Cost of a call without work: fake-csi over its socket, against a bare tonic server.
//!
//! `cargo run --release -p fake-csi --example overhead -- SOCKET` prints microseconds for the driver at that socket
//! and for a server of this process that answers the same call with nothing behind it.

use std::path::Path;
use std::time::{Duration, Instant};

use csi_proto::v1;
use csi_proto::v1::identity_client::IdentityClient;
use csi_proto::v1::identity_server::{Identity, IdentityServer};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::{Endpoint, Server};
use tonic::{Request, Response, Status};

const CALLS: usize = 20_000;

/// A service without work: it answers with default messages.
#[derive(Debug)]
struct Bare;

#[tonic::async_trait]
impl Identity for Bare {
    async fn get_plugin_info(
        &self,
        _: Request<v1::GetPluginInfoRequest>,
    ) -> Result<Response<v1::GetPluginInfoResponse>, Status> {
        Ok(Response::new(v1::GetPluginInfoResponse::default()))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<v1::GetPluginCapabilitiesRequest>,
    ) -> Result<Response<v1::GetPluginCapabilitiesResponse>, Status> {
        Ok(Response::new(v1::GetPluginCapabilitiesResponse::default()))
    }

    async fn probe(&self, _: Request<v1::ProbeRequest>) -> Result<Response<v1::ProbeResponse>, Status> {
        Ok(Response::new(v1::ProbeResponse { ready: Some(true) }))
    }
}

fn main() -> anyhow::Result<()> {
    let socket = std::env::args().nth(1).ok_or_else(|| anyhow::anyhow!("usage: overhead SOCKET"))?;
    let bare = std::env::temp_dir().join(format!("overhead-{}.sock", std::process::id()));
    serve_bare(&bare)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let measured = runtime.block_on(async {
        // In turns, so that other load on the machine slows both alike.
        let mut rows = Vec::new();
        for _ in 0..3 {
            rows.push(("bare tonic", measure(&bare).await?));
            rows.push(("fake-csi", measure(Path::new(&socket)).await?));
        }
        anyhow::Ok(rows)
    });
    std::fs::remove_file(&bare)?;
    for (name, [p50, p99]) in measured? {
        println!("{name:<12} p50 {:>7.1} us   p99 {:>7.1} us", micros(p50), micros(p99));
    }
    Ok(())
}

/// Serves from a thread of its own, as a driver serves from a process of its own.
fn serve_bare(path: &Path) -> anyhow::Result<()> {
    let listener = std::os::unix::net::UnixListener::bind(path)?;
    listener.set_nonblocking(true)?;
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let listener = UnixListenerStream::new(tokio::net::UnixListener::from_std(listener)?);
            anyhow::Ok(
                Server::builder()
                    .add_service(IdentityServer::new(Bare))
                    .serve_with_incoming(listener)
                    .await?,
            )
        })
    });
    Ok(())
}

async fn measure(socket: &Path) -> anyhow::Result<[Duration; 2]> {
    let channel = Endpoint::try_from(format!("unix:{}", socket.display()))?.connect().await?;
    let mut client = IdentityClient::new(channel);
    let mut times = Vec::with_capacity(CALLS);
    for _ in 0..CALLS {
        let start = Instant::now();
        client.probe(v1::ProbeRequest {}).await?;
        times.push(start.elapsed());
    }
    times.sort_unstable();
    Ok([times[CALLS / 2], times[CALLS * 99 / 100]])
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
