//! One volume for one pod, in and out, on the real kernel: a testbed with nothing around it.
//!
//! Needs root. `cargo run -p harness --example one_volume [block] [--driver-flag …]`: flags are for fake-csi.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use api::pod::{VolumeDevice, VolumeMount};
use api::{Container, Meta, Pod, PodVolume, VolumeSource};
use harness::api_server::VolumeRequest;
use harness::journal::Journal;
use harness::manifest::Manifest;
use harness::observe::MountWatch;
use harness::sandbox::{MachineOptions, Sandbox, SandboxOptions};
use harness::symbols::Symbols;
use harness::testbed::Testbed;

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
    let manifest = Manifest::fake_csi(&flags());
    let bed = Testbed::builder(journal, layout, manifest, logs.to_owned()).put_up().await?;
    let can = bed.capabilities();
    println!("{} {}: {:?}", can.name, can.version, can.node);

    let block = std::env::args().any(|word| word == "block");
    let wanted = VolumeRequest { block, ..VolumeRequest::new("data", bed.manifest()) };
    bed.provisioner.provision(&wanted).await?;
    let (node, journal) = (&bed.node, &bed.journal);
    node.add_pod(pod(block))?;
    let mounted = node.wait_mounted("web", LIMIT).await;
    node.wait_idle(LIMIT).await?;
    print!("--- in\n{}", journal.look());
    mounted.with_context(|| format!("see {}", logs.display()))?;

    node.remove_pod("web", false).await?;
    node.wait_gone("web", LIMIT).await?;
    node.wait_idle(LIMIT).await?;
    print!("--- out\n{}", journal.look());
    bed.provisioner.delete("data").await?;
    bed.end(LIMIT).await;
    journal.write(logs)?;
    println!(
        "--- {} lines in {}; irregular: {:?}",
        journal.trace().len(),
        logs.display(),
        journal.irregular()
    );
    Ok(())
}

/// All arguments but this example's own.
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
