//! The manager in this process, with the API in memory and a socket of the driver: no node around it.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use api::clock::AdvancingClock;
use api::{Claim, CsiDriver, Volume};
use futures::future::try_join_all;
use harness::api_server::ApiServer;
use harness::journal::Journal;
use harness::symbols::Symbols;
use harness::testbed::Testbed;
use host::linux::LinuxHost;
use measure::ProcessTime;
use volume_manager::plugin::csi::socket::SocketDialer;
use volume_manager::plugin::registry;
use volume_manager::{ClientStyle, Config, Parts, PodState, VolumeManager};

use super::arm::{LIMIT, Round};
use super::load::Load;

pub(crate) struct Alone {
    api: ApiServer,
    manager: VolumeManager,
}

impl Alone {
    /// Takes the place of the node of a testbed, whose volumes it uses, with the driver at this socket.
    pub(crate) async fn in_place_of_node(bed: &Testbed, style: ClientStyle, socket: &Path) -> Result<Self> {
        bed.node.kill().await;
        let api = ApiServer::new(Journal::new(Symbols::new(bed.layout.clone()), None));
        // With the labels that the driver's registration has given it.
        bed.api_server.list::<api::Node>().into_iter().try_for_each(|node| copy(&api, node))?;
        bed.api_server.list::<CsiDriver>().into_iter().try_for_each(|driver| copy(&api, driver))?;
        bed.api_server.list::<Volume>().into_iter().try_for_each(|volume| copy(&api, volume))?;
        bed.api_server.list::<Claim>().into_iter().try_for_each(|claim| copy(&api, claim))?;
        let root = bed.layout.root();
        let parts = Parts {
            api: api.seen_by(contracts::event::Client::Case),
            host: Arc::new(LinuxHost::of_node(root)),
            clock: Arc::new(AdvancingClock::default()),
            dialer: Arc::new(SocketDialer),
            registry: registry::kubelet(),
            containers: None,
        };
        let config = Config { client_style: style, ..Config::new("node-1", root) };
        let manager = VolumeManager::start(config, parts);
        manager.driver_registered(bed.driver_name().into(), socket.to_owned());
        manager.sources_ready();
        manager.wait_idle(LIMIT).await?;
        Ok(Self { api, manager })
    }

    /// New pods in and out.
    pub(crate) async fn round(&self, load: &Load, number: usize) -> Result<Round> {
        let pods = load.pods(number).into_iter().map(|pod| self.api.create(pod));
        let pods = pods.collect::<Result<Vec<_>, _>>().context("cannot write a pod")?;
        let uids: Vec<_> = pods.iter().map(|pod| pod.uid()).collect();
        let (begin, cpu) = (Instant::now(), ProcessTime::now());
        pods.into_iter().for_each(|pod| self.manager.add_pod(pod));
        try_join_all(uids.iter().map(|uid| self.manager.wait_mounted(uid, LIMIT))).await?;
        let way_in = begin.elapsed();
        self.manager.wait_idle(LIMIT).await?;
        let cpu_in = cpu.elapsed();
        let (begin, cpu) = (Instant::now(), ProcessTime::now());
        uids.iter().for_each(|uid| self.manager.set_pod_state(uid, PodState::RuntimeGone));
        try_join_all(uids.iter().map(|uid| self.manager.wait_unmounted(uid, LIMIT))).await?;
        uids.iter().for_each(|uid| self.manager.remove_pod(uid));
        self.manager.wait_idle(LIMIT).await?;
        Ok(Round { way_in, way_out: begin.elapsed(), cpu: cpu_in + cpu.elapsed() })
    }
}

fn copy<R: api::Resource + Clone>(api: &ApiServer, object: Arc<R>) -> Result<()> {
    api.create(Arc::unwrap_or_clone(object)).map(drop).context("cannot copy an object")
}
