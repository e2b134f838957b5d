//! The node's process: the volume manager on the real kernel, with the parts of a kubelet around it.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use api::clock::{AdvancingClock, Clock};
use api::kept_tokens::KeptTokens;
use api::{ApiSource, Sensitive};
use host::linux::LinuxHost;
use host::{FileKind, Host};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedReadHalf;
use tokio::sync::mpsc;
use tracing_subscriber::filter::{LevelFilter, Targets, filter_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt};
use volume_manager::container::services::Services;
use volume_manager::plugin::csi::registration::{Registrar, allocatable, watch};
use volume_manager::plugin::registry;
use volume_manager::{Config, Dialer, Parts};
use volume_manager::{VolumeManager, WAIT_LIMIT};

use super::announce::Announcer;
use super::orphans;
use super::pod::Pods;
use super::protocol::{Answer, Order, Ordered, Said, Settings};
use super::status;
use crate::Layout;
use crate::api_server::ApiClient;

/// The settings and handles that all parts of the node's process share.
#[derive(Debug, Clone)]
pub(super) struct Surroundings {
    pub(super) settings: Settings,
    pub(super) layout: Layout,
    pub(super) api: Arc<dyn ApiSource>,
    pub(super) tokens: Arc<KeptTokens>,
    pub(super) host: Arc<dyn Host>,
    pub(super) clock: AdvancingClock,
    pub(super) services: Services,
    pub(super) manager: VolumeManager,
}

/// The process `__node`; its one argument has the settings.
pub fn main(settings: &str) -> ExitCode {
    match run(settings) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(settings: &str) -> Result<()> {
    let settings: Settings = serde_json::from_str(settings).context("cannot read the node's settings")?;
    let layout = Layout::new(&settings.root, &settings.state);
    let announcer = Announcer::connect(&layout.effects_socket());
    let announcer = announcer.context("cannot reach the journal")?;
    let announced = filter_fn(|metadata| metadata.target() == host::effect::TARGET);
    // The transport's debug output would fill the log and cost more time than the calls.
    let ours = Targets::new().with_default(LevelFilter::WARN);
    let ours = ["volume_manager", "host", "harness"]
        .iter()
        .fold(ours, |all, name| all.with_target(*name, LevelFilter::DEBUG));
    let log = fmt::layer().with_writer(std::io::stderr).with_ansi(false).with_filter(ours);
    tracing_subscriber::registry().with(announcer.clone().with_filter(announced)).with(log).init();
    // One thread runs the manager; only system calls that may wait for a server have threads of their own.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve(settings, layout, announcer))
}

async fn serve(settings: Settings, layout: Layout, announcer: Announcer) -> Result<()> {
    let api = ApiClient::connect(&layout.api_socket()).await?;
    let stream = UnixStream::connect(layout.node_socket()).await.context("cannot reach the harness")?;
    let (reader, mut writer) = stream.into_split();
    let (answers, mut outgoing) = mpsc::unbounded_channel::<Answer>();
    tokio::spawn(async move {
        while let Some(answer) = outgoing.recv().await {
            let mut line = serde_json::to_vec(&answer).expect("answers are made of plain values");
            line.push(b'\n');
            if writer.write_all(&line).await.is_err() {
                return;
            }
        }
    });
    let mut orders = BufReader::new(reader).lines();
    // The first order lists the pods whose containers are gone; nothing is decided before.
    let first = orders.next_line().await?.context("the harness has gone")?;
    let Ordered { id, order } = serde_json::from_str(&first).context("cannot read the first order")?;
    let Order::Start { gone } = order else { anyhow::bail!("the first order is not to start") };
    let dialer: Arc<dyn Dialer> = Arc::new(announcer.clone());
    let (surroundings, config) = start(settings, layout, Arc::new(api), Arc::clone(&dialer)).await?;
    tokio::spawn(announcer.forward(surroundings.manager.subscribe()));
    tokio::spawn(status::report(surroundings.clone()));
    register_drivers(&surroundings, config, dialer).await;
    // A container that starts earlier is refused: its environment could not get the services later.
    let _ = tokio::time::timeout(MOMENT, surroundings.services.read()).await;
    let pods = Pods::follow(surroundings.clone(), gone).await;
    tokio::spawn(orphans::remove(surroundings.clone(), pods.clone()));
    // If the harness has ended, the next read fails.
    let _ = answers.send(Answer { id, said: Said::Done });
    obey(orders, surroundings, pods, answers).await
}

async fn start(
    settings: Settings,
    layout: Layout,
    api: Arc<dyn ApiSource>,
    dialer: Arc<dyn Dialer>,
) -> Result<(Surroundings, Config)> {
    let clock = AdvancingClock::default();
    let tokens = Arc::new(KeptTokens::new(Arc::clone(&api), Arc::new(clock.clone())));
    let api: Arc<dyn ApiSource> = match settings.keep_tokens {
        true => Arc::<KeptTokens>::clone(&tokens),
        false => api,
    };
    let host: Arc<dyn Host> = Arc::new(LinuxHost::of_node(layout.root()).beside(&settings.other_roots));
    for directory in ["pods", "plugins", "plugins_registry"] {
        host.make_dir_all(&layout.root().join(directory), 0o750).await?;
    }
    // Without a shared root, a driver's mounts in its own container do not reach pods.
    host::lookup::make_root_shared(&*host, layout.root()).await?;
    let mut config = Config::new(settings.name.as_str(), layout.root());
    config.client_style = settings.client_style;
    config.call_deadline = settings.call_deadline;
    let parts = Parts {
        api: Arc::clone(&api),
        host: Arc::clone(&host),
        clock: Arc::new(clock.clone()),
        dialer,
        registry: registry::kubelet(),
        containers: None,
    };
    let manager = VolumeManager::start(config.clone(), parts);
    let services = Services::follow(Arc::clone(&api), Arc::new(clock.clone()));
    Ok((Surroundings { settings, layout, api, tokens, host, clock, services, manager }, config))
}

/// Runs orders concurrently until the harness has ended.
async fn obey(
    mut orders: tokio::io::Lines<BufReader<OwnedReadHalf>>,
    surroundings: Surroundings,
    pods: Pods,
    answers: mpsc::UnboundedSender<Answer>,
) -> Result<()> {
    while let Some(line) = orders.next_line().await? {
        let Ordered { id, order } = serde_json::from_str(&line).context("cannot read an order")?;
        let (surroundings, pods, answers) = (surroundings.clone(), pods.clone(), answers.clone());
        tokio::spawn(async move {
            let said = carry_out(order, &surroundings, &pods).await.unwrap_or_else(Said::Refused);
            // If the harness has ended, the next read fails.
            let _ = answers.send(Answer { id, said });
        });
    }
    Ok(())
}

async fn carry_out(order: Order, around: &Surroundings, pods: &Pods) -> Result<Said, String> {
    match order {
        Order::Start { .. } => return Err("this is no order for now".to_owned()),
        Order::RuntimeGone(uid) => pods.runtime_gone(&uid),
        Order::Sync(pod) => pods.sync(&pod)?,
        Order::WaitMounted(pod, limit) => pods.wait_mounted(&pod, limit).await?,
        Order::WaitUnmounted(pod, limit) => pods.wait_unmounted(&pod, limit).await?,
        Order::WaitGone(pod, limit) => pods.wait_gone(&pod, limit).await?,
        Order::WaitIdle(known, limit) => {
            pods.wait_known(&known, limit).await?;
            around.manager.wait_idle(limit).await.map_err(|error| error.to_string())?;
        }
        Order::Mounted(pod) => {
            let uid = pods.uid(&pod)?;
            let volumes = around.manager.mounted_volumes(&uid).await;
            let volumes = volumes.into_iter().map(|(name, volume)| (name.to_string(), volume));
            return Ok(Said::Mounted(volumes.collect()));
        }
        Order::Configure(wanted) => {
            let pod = pods.pod(&wanted.pod)?;
            let spec = super::configure::configure(around, &pod, wanted).await?;
            return Ok(Said::Configured(Sensitive::new(Box::new(spec))));
        }
        Order::Dump => {
            let dump = around.manager.dump().await.ok_or("the manager has ended")?;
            return Ok(Said::Dump(Box::new(dump)));
        }
        Order::Advance(by) => around.clock.advance(by),
    }
    Ok(Said::Done)
}

/// Finds drivers and registers them with the manager. Drivers that listen already get a moment to be registered: the
/// kubelet first syncs its pods some time after its start, and a manager that does not wait would emit an event about a
/// missing driver for each pod.
async fn register_drivers(around: &Surroundings, config: Config, dialer: Arc<dyn Dialer>) {
    let clock: Arc<dyn Clock> = Arc::new(around.clock.clone());
    let (manager, api) = (around.manager.clone(), Arc::clone(&around.api));
    let registrar = Registrar::new(manager, config, api, Arc::clone(&clock), dialer);
    let directory = around.layout.root().join("plugins_registry");
    tokio::spawn(allocatable::run(registrar.clone()));
    let present = around.host.read_dir(&directory).await.unwrap_or_default();
    let sockets = present.into_iter().filter(|entry| entry.kind == FileKind::Socket);
    let sockets: Vec<_> = sockets.map(|entry| directory.join(entry.name)).collect();
    tokio::spawn(watch::run(registrar.clone(), Arc::clone(&around.host), clock, directory));
    let registered = async {
        while !sockets.iter().all(|socket| registrar.has(socket)) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    // A driver that does not answer delays the node by this moment only.
    let _ = tokio::time::timeout(MOMENT, registered).await;
}

/// The time for drivers that listen at the node's start to be registered.
const MOMENT: Duration = Duration::from_secs(1);

/// The kubelet's pause before it syncs a failed pod again.
pub(super) const RETRY: Duration = Duration::from_secs(10);

/// The kubelet's limit of a wait for a pod's volumes.
pub(super) const LIMIT: Duration = WAIT_LIMIT;
