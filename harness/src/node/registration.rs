//! Finds drivers: each socket in the registration directory is asked what is behind it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use csi_proto::registration::registration_client::RegistrationClient;
use csi_proto::registration::{InfoRequest, PluginInfo, RegistrationStatus};
use csi_proto::v1::NodeGetInfoRequest;
use csi_proto::v1::node_client::NodeClient;
use tonic::transport::{Channel, Endpoint};
use volume_manager::Registration;
use volume_manager::api::{self, CsiNode, CsiNodeDriver, Key, Kind, Node, Patch, PatchBody};
use volume_manager::names::DriverName;

use super::child::Surroundings;

/// Looks for sockets again and again; the kubelet does so once a second.
pub(super) async fn follow(around: Surroundings) {
    let directory = around.layout.root().join("plugins_registry");
    let mut known: BTreeMap<PathBuf, (u64, Option<DriverName>)> = BTreeMap::new();
    loop {
        let found = sockets(&directory);
        let left = known.iter().filter(|(path, (inode, _))| found.get(*path) != Some(inode));
        let left: Vec<PathBuf> = left.map(|(path, _)| path.clone()).collect();
        for path in left {
            if let Some((_, Some(driver))) = known.remove(&path) {
                around.manager.registration(Registration::Removed { driver });
            }
        }
        for (path, inode) in found {
            let Entry::Vacant(new) = known.entry(path) else { continue };
            let driver = register(&around, new.key()).await;
            if let Err(error) = &driver {
                tracing::warn!(?error, socket = %new.key().display(), "cannot register a driver");
            }
            new.insert((inode, driver.ok()));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Sockets by path, with what tells a new one of the same name from the old.
fn sockets(directory: &Path) -> BTreeMap<PathBuf, u64> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let visible = entries.filter(|entry| !entry.file_name().to_string_lossy().starts_with('.'));
    let socket = |entry: fs::DirEntry| {
        let metadata = entry.metadata().ok().filter(|found| found.file_type().is_socket())?;
        Some((entry.path(), metadata.ino()))
    };
    visible.filter_map(socket).collect()
}

async fn register(around: &Surroundings, socket: &Path) -> Result<DriverName> {
    let mut desk = RegistrationClient::new(connect(socket).await?);
    let info = desk.get_info(InfoRequest {}).await.context("GetInfo failed")?.into_inner();
    let driver = DriverName::new(&info.name);
    let taken = take(around, socket, &info, &driver).await;
    if taken.is_err() {
        around.manager.registration(Registration::Removed { driver: driver.clone() });
    }
    let error = taken.as_ref().err().map(|error| format!("{error:#}")).unwrap_or_default();
    let status = RegistrationStatus { plugin_registered: taken.is_ok(), error };
    desk.notify_registration_status(status).await.context("cannot tell the driver")?;
    taken.map(|()| driver)
}

async fn take(around: &Surroundings, socket: &Path, info: &PluginInfo, driver: &DriverName) -> Result<()> {
    anyhow::ensure!(info.r#type == "CSIPlugin", "no handler for the type `{}`", info.r#type);
    let endpoint = match info.endpoint.as_str() {
        "" => socket.to_owned(),
        endpoint => PathBuf::from(endpoint),
    };
    // Reachable first: nothing waits for the answer to NodeGetInfo but the objects that are made of it.
    around.manager.driver_registered(driver.clone(), endpoint.clone());
    let mut client = NodeClient::new(connect(&endpoint).await?);
    let mut request = tonic::Request::new(NodeGetInfoRequest {});
    request.set_timeout(around.settings.call_deadline);
    let answer = client.node_get_info(request).await.context("NodeGetInfo failed")?.into_inner();
    anyhow::ensure!(!answer.node_id.is_empty(), "NodeGetInfo answered without a node id");
    let topology = answer.accessible_topology.map(|found| found.segments).unwrap_or_default();
    let allocatable = i32::try_from(answer.max_volumes_per_node).unwrap_or(i32::MAX);
    let entry = CsiNodeDriver {
        name: driver.to_string(),
        node_id: answer.node_id,
        topology_keys: topology.keys().cloned().collect(),
        allocatable: (allocatable > 0).then_some(allocatable),
    };
    write(around, entry, topology.into_iter().collect()).await
}

async fn write(
    around: &Surroundings,
    entry: CsiNodeDriver,
    topology: BTreeMap<String, String>,
) -> Result<()> {
    let name = around.settings.name.as_str();
    let node: Arc<Node> = api::get(around.api.as_ref(), "", name).await?;
    for (key, value) in &topology {
        let other = node.meta.labels.get(key).filter(|label| *label != value);
        anyhow::ensure!(other.is_none(), "the node's label `{key}` has another value");
    }
    let labels = topology.into_iter().map(|(key, value)| (key, Some(value))).collect();
    let annotation = format!("{{\"{}\":\"{}\"}}", entry.name, entry.node_id);
    let annotations = [("csi.volume.kubernetes.io/nodeid".to_owned(), Some(annotation))].into();
    let body = PatchBody::Metadata { labels, annotations };
    around.api.patch(Patch::of(Key::cluster(Kind::Node, name), body)).await?;

    let known: Arc<CsiNode> = api::get(around.api.as_ref(), "", name).await?;
    let mut drivers: Vec<_> =
        known.drivers.iter().filter(|known| known.name != entry.name).cloned().collect();
    drivers.push(entry);
    if drivers != known.drivers {
        let body = PatchBody::CsiNodeDrivers(drivers);
        around.api.patch(Patch::of(Key::cluster(Kind::CsiNode, name), body)).await?;
    }
    Ok(())
}

async fn connect(socket: &Path) -> Result<Channel> {
    let endpoint = Endpoint::try_from(format!("unix:{}", socket.display()))?;
    endpoint.connect().await.with_context(|| format!("cannot connect to `{}`", socket.display()))
}
