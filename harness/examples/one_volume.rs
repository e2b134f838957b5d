//! One volume for one pod, in and out, on the real kernel: the whole stage with nothing around it.
//!
//! Needs root. `cargo run -p harness --example one_volume [block] [--driver-flag …]`: flags are for fake-csi.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use harness::cluster::{Cluster, Provisioner, VolumeRequest, driver_object};
use harness::driver::{Driver, DriverOptions, Registrar};
use harness::journal::Journal;
use harness::manifest::Manifest;
use harness::node::{Node, NodeOptions};
use harness::observe::MountWatch;
use harness::proxy::{Proxy, ProxyOptions};
use harness::sandbox::{MachineOptions, Sandbox, SandboxOptions};
use harness::symbols::Symbols;
use volume_manager::api::pod::{VolumeDevice, VolumeMount};
use volume_manager::api::{Container, Meta, Pod, PodVolume, VolumeSource};

const LIMIT: Duration = Duration::from_secs(30);

fn main() -> ExitCode {
    if let Some(code) = harness::main() {
        return code;
    }
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let logs = std::env::temp_dir().join(format!("one-volume-{}", std::process::id()));
    std::fs::create_dir_all(&logs)?;
    let machine = MachineOptions { open: vec![logs.clone()], ..Default::default() };
    let name = "one_volume".to_owned();
    let sandbox = Sandbox::enter(SandboxOptions { name, machine, ..Default::default() })?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(play(&sandbox, &logs))
}

async fn play(sandbox: &Sandbox, logs: &Path) -> Result<()> {
    let layout = sandbox.layout();
    let witness = MountWatch::start()?;
    let journal = Journal::new(Symbols::new(layout.clone()), Some(Box::new(witness)));
    let options = DriverOptions {
        manifest: Manifest::fake_csi(&flags()),
        layout: layout.clone(),
        node: "node-1".to_owned(),
        log: logs.join("driver.log"),
        cgroup: None,
    };
    let mut driver = Driver::start(options, journal.clone()).await?;
    let can = driver.capabilities().clone();
    println!("{} {}: {:?}", can.name, can.version, can.node);

    let proxied = ProxyOptions {
        listen: layout.csi_socket(&can.name),
        driver: driver.socket().to_owned(),
        controller: None,
        ledger: None,
    };
    let proxy = Proxy::serve(proxied, journal.clone())?;
    let cluster = Cluster::new(journal.clone());
    let _served = cluster.serve(&layout.cluster_socket())?;
    cluster.add_node("node-1")?;
    let mut object = driver_object(&can);
    object.attach_required = false;
    cluster.add_driver(object)?;
    let node = NodeOptions::new(layout.clone(), "node-1", logs.join("manager.log"));
    let mut node = Node::start(node, cluster.clone()).await?;
    let announced = layout.registration_socket(&can.name);
    let registrar = Registrar::serve(&announced, &can.name, proxy.socket(), journal.clone())?;
    registrar.registered().await.map_err(anyhow::Error::msg)?;

    let block = std::env::args().any(|word| word == "block");
    let provisioner = Provisioner::new(cluster.clone(), proxy.channel()?, driver.manifest().clone(), can);
    let wanted = VolumeRequest { block, ..VolumeRequest::new("data", driver.manifest()) };
    provisioner.provision(&wanted).await?;
    node.add_pod(pod(block))?;
    let mounted = node.wait_mounted("web", LIMIT).await;
    node.wait_idle(LIMIT).await?;
    print!("--- in\n{}", journal.look());
    mounted.with_context(|| format!("see {}", logs.display()))?;

    node.remove_pod("web", false).await?;
    node.wait_gone("web", LIMIT).await?;
    node.wait_idle(LIMIT).await?;
    print!("--- out\n{}", journal.look());
    provisioner.delete("data").await?;
    node.kill().await;
    driver.terminate(LIMIT).await;
    journal.write(logs)?;
    println!(
        "--- {} lines in {}; irregular: {:?}",
        journal.trace().len(),
        logs.display(),
        journal.irregular()
    );
    Ok(())
}

/// What is not for this example is for the driver.
fn flags() -> Vec<String> {
    std::env::args().skip(1).filter(|word| word != "block").collect()
}

fn pod(block: bool) -> Pod {
    let mut container = Container { name: "c".to_owned(), ..Container::default() };
    let (volume, path) = ("data".to_owned(), "/data".to_owned());
    match block {
        true => container.devices.push(VolumeDevice { volume, path }),
        false => container.mounts.push(VolumeMount { volume, path, ..VolumeMount::default() }),
    }
    let source = VolumeSource::Claim { claim: "data".to_owned(), read_only: false };
    Pod {
        meta: Meta::named("default", "web"),
        volumes: vec![PodVolume { name: "data".into(), source }],
        containers: vec![container],
        ..Pod::default()
    }
}
