//! Serves each node at its socket, and orders at the control socket.

use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use csi_proto::v1::controller_server::ControllerServer;
use csi_proto::v1::group_controller_server::GroupControllerServer;
use csi_proto::v1::identity_server::IdentityServer;
use csi_proto::v1::node_server::NodeServer;
use csi_proto::v1::snapshot_metadata_server::SnapshotMetadataServer;
use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::UnixListenerStream;
use tower::layer::layer_fn;

use crate::ability::Ability;
use crate::books::{Access, Books, Node, Snapshot, Volume};
use crate::control::{self, SOCKET};
use crate::controller::ControllerService;
use crate::driver::{Driver, Options};
use crate::fault::{Fault, Faults, Faulty};
use crate::garbage::Garbage;
use crate::group::GroupService;
use crate::identity::IdentityService;
use crate::journal::Entry;
use crate::metadata::MetadataService;
use crate::node::NodeService;
use crate::sabotage::Sabotage;

/// Serves until `SIGTERM` or `SIGINT`. Volumes stay mounted: another driver may take over.
pub(crate) async fn serve(options: Options, nodes: Vec<(Node, PathBuf)>) -> anyhow::Result<()> {
    let filter = tracing_subscriber::EnvFilter::try_from_env("FAKE_CSI_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    // The embedding program may have set a subscriber already.
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    drop(log.with_ansi(io::stderr().is_terminal()).try_init());

    let driver = Arc::new(Driver::open(options)?);
    let faults = Arc::new(Faults::default());
    driver.options.faults.iter().cloned().for_each(|fault| faults.order(fault));
    if driver.breaks(Sabotage::StageAnswersGarbage) {
        faults.order(Fault {
            method: "NodeStageVolume".to_owned(),
            times: 1,
            after: true,
            garbage: Some(Garbage::NoProtobuf),
            ..Fault::default()
        });
    }
    let services: Vec<_> = nodes.iter().map(|(node, _)| node_service(&driver, node)).collect();
    start_up(&driver, &nodes, &services)?;

    // The control socket first: a client that has reached an endpoint can use it.
    let unmounts = driver.breaks(Sabotage::TerminatedUnmounts);
    let leaving: Vec<_> = nodes.iter().map(|(node, _)| node_service(&driver, node)).collect();
    let (state, ending) = (driver.options.state.clone(), Arc::clone(&driver));
    let listener = listen_for_orders(&state, &nodes[0].0.name)?;
    tokio::spawn(control::serve(listener, driver, Arc::clone(&faults)));

    for (service, (node, endpoint)) in services.into_iter().zip(&nodes) {
        let listener = listen(endpoint)?;
        tracing::info!(node = node.name, endpoint = %endpoint.display(), "serving");
        tokio::spawn(serve_node(service, listener, Arc::clone(&faults)));
    }

    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! {
        biased;
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    if unmounts {
        let failed = |status: tonic::Status| anyhow::anyhow!("cannot unmount: {}", status.message());
        leaving.iter().try_for_each(|service| service.unmount_targets().map_err(failed))?;
    }
    if ending.breaks(Sabotage::TerminatedForgetsTargets) {
        let forgotten = ending.journal.read(|books| rewritten(books, |volume| volume.targets.clear()))?;
        ending.journal.transact(|_| Ok::<_, crate::journal::JournalError>((forgotten, ())))?;
    }
    for (_, endpoint) in &nodes {
        drop(std::fs::remove_file(endpoint));
    }
    ending.leave_in_order();
    Ok(())
}

fn node_service(driver: &Arc<Driver>, node: &Node) -> NodeService {
    NodeService {
        driver: Arc::clone(driver),
        name: node.name.as_str().into(),
        zone: node.zone.as_str().into(),
    }
}

/// Entries that replace those of the books.
type Rewrite = fn(&Books) -> Vec<Entry>;

/// The records that a restarted driver overwrites, by sabotage.
const FORGOTTEN: [(Sabotage, Rewrite); 11] = [
    (Sabotage::RestartForgetsSnapshots, |books| {
        books.snapshots.keys().cloned().map(Entry::SnapshotGone).collect()
    }),
    (Sabotage::RestartForgetsGroups, |books| books.groups.keys().cloned().map(Entry::GroupGone).collect()),
    (Sabotage::RestartForgetsPublished, |books| {
        rewritten(books, |volume| volume.targets = Default::default())
    }),
    (Sabotage::RestartKeepsOneTarget, |books| {
        rewritten(books, |volume| {
            let first = volume.targets.keys().next().cloned();
            volume.targets.retain(|path, _| Some(path) == first.as_ref());
        })
    }),
    (Sabotage::RestartForgetsAttached, |books| {
        rewritten(books, |volume| volume.attached = Default::default())
    }),
    (Sabotage::RestartForgetsInline, |books| {
        let inline = books.volumes.values().filter(|volume| volume.ephemeral);
        inline.map(|volume| Entry::VolumeGone(volume.id.clone())).collect()
    }),
    (Sabotage::RestartForgetsGrowth, |books| rewritten(books, |volume| volume.capacity /= 2)),
    (Sabotage::RestartForgetsTime, |books| {
        let timeless =
            books.snapshots.values().map(|snapshot| Snapshot { seconds: 0, nanos: 0, ..snapshot.clone() });
        timeless.map(|snapshot| Entry::Snapshot(Box::new(snapshot))).collect()
    }),
    (Sabotage::RestartFreesMembers, |books| {
        let freed = books.snapshots.values().map(|snapshot| Snapshot { group: None, ..snapshot.clone() });
        freed.map(|snapshot| Entry::Snapshot(Box::new(snapshot))).collect()
    }),
    (Sabotage::RestartForgetsReadOnly, |books| {
        rewritten(books, |volume| {
            volume.attached.values_mut().for_each(|attachment| attachment.readonly = false);
        })
    }),
    (Sabotage::RestartForgetsDevices, |books| rewritten(books, take_for_file_system)),
];

fn take_for_file_system(volume: &mut Volume) {
    for capability in volume.capabilities.iter_mut().filter(|capability| capability.access == Access::Block) {
        capability.access = Access::Mount { fs_type: String::new(), flags: Vec::new(), group: String::new() };
    }
}

/// All volumes, each with a change.
fn rewritten(books: &Books, change: fn(&mut Volume)) -> Vec<Entry> {
    let changed = |mut volume: Volume| {
        change(&mut volume);
        Entry::Volume(Box::new(volume))
    };
    books.volumes.values().cloned().map(changed).collect()
}

/// Records the nodes and recovers from an earlier driver, before the first call.
fn start_up(driver: &Driver, nodes: &[(Node, PathBuf)], services: &[NodeService]) -> anyhow::Result<()> {
    let entries = nodes.iter().map(|(node, _)| Entry::Node(node.clone())).collect();
    driver.journal.transact(|_| Ok::<_, crate::journal::JournalError>((entries, ())))?;
    let failed = |status: tonic::Status| anyhow::anyhow!("cannot recover: {}", status.message());
    driver.thaw().map_err(failed)?;
    for (_, forgotten) in FORGOTTEN.iter().filter(|(sabotage, _)| driver.breaks(*sabotage)) {
        let entries = driver.journal.read(forgotten)?;
        driver.journal.transact(|_| Ok::<_, crate::journal::JournalError>((entries, ())))?;
    }
    if driver.journal.read(|books| !books.volumes.is_empty())? {
        // The sabotage acts elsewhere.
        driver.remember("a restart with volumes");
    }
    if driver.breaks(Sabotage::RestartClosesRoots) {
        driver.journal.read(close_roots)?;
    }
    for service in services {
        if driver.breaks(Sabotage::RestartUnmounts) {
            service.unmount_targets().map_err(failed)?;
        }
        service.recover().map_err(failed)?;
    }
    if driver.journal.alone
        && let Err(status) = driver.sweep()
    {
        // Not fatal: the leftovers only take up space.
        tracing::error!(
            cause = status.message(),
            "cannot remove remains of an earlier driver; serving without"
        );
    }
    Ok(())
}

/// The bug: takes all rights to the root of each published volume from everybody but root.
fn close_roots(books: &Books) {
    let closed = <std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o700);
    for target in books.volumes.values().flat_map(|volume| volume.targets.keys()) {
        drop(std::fs::set_permissions(target, closed.clone()));
    }
}

async fn serve_node(node: NodeService, listener: UnixListener, faults: Arc<Faults>) {
    let driver = Arc::clone(&node.driver);
    // A service that is switched off is not registered, so that tonic answers UNIMPLEMENTED.
    let group = driver.can(Ability::GroupSnapshot);
    let group = group.then(|| GroupControllerServer::new(GroupService { driver: Arc::clone(&driver) }));
    let metadata = driver.can(Ability::SnapshotMetadata);
    let metadata =
        metadata.then(|| SnapshotMetadataServer::new(MetadataService { driver: Arc::clone(&driver) }));
    let sabotage = driver.options.sabotage;
    let noise = faults.noise.clone();
    let connections =
        UnixListenerStream::new(listener).map(move |stream| Ok::<_, io::Error>(noise.over(stream?)));
    let served = tonic::transport::Server::builder()
        .layer(layer_fn(move |inner| Faulty { inner, faults: Arc::clone(&faults), sabotage }))
        .add_service(IdentityServer::new(IdentityService { driver: Arc::clone(&driver) }))
        .add_service(ControllerServer::new(ControllerService { driver }))
        .add_service(NodeServer::new(node))
        .add_optional_service(group)
        .add_optional_service(metadata)
        .serve_with_incoming(connections)
        .await;
    if let Err(error) = served {
        tracing::error!(%error, "cannot serve any longer");
    }
}

/// Listens at a path, in place of an earlier driver's socket.
fn listen(path: &Path) -> anyhow::Result<UnixListener> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("cannot replace `{}`", path.display()));
        }
        _ => {}
    }
    UnixListener::bind(path).with_context(|| format!("cannot listen at `{}`", path.display()))
}

/// Listens for orders at the socket of this node, and points the well-known name to it. The process that was started
/// last gets the orders.
///
/// Two processes of one node may start at once (a node plugin and a controller plugin), so each makes its files under
/// names of its own and renames them.
fn listen_for_orders(state: &Path, node: &str) -> anyhow::Result<UnixListener> {
    let name = format!("control-{node}.sock");
    let own = state.join(format!(".{node}-{}", std::process::id()));
    let listener = listen(&own)?;
    std::fs::rename(&own, state.join(&name)).context("cannot name the control socket")?;
    std::os::unix::fs::symlink(&name, &own).context("cannot link the control socket")?;
    std::fs::rename(&own, state.join(SOCKET)).context("cannot link the control socket")?;
    Ok(listener)
}
