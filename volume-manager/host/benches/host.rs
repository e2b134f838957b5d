//! Cost of the host's calls, each as a ratio to the plain way: `cargo xtask bench plugins`, as root.
//!
//! - looking up one mount among many, against reading and parsing the whole table;
//! - changing the group of a tree, against `chown -R` and `chmod -R`;
//! - steps a second of the simulated kernel.

#![expect(clippy::unwrap_used, reason = "a failed measurement ends the benchmark")]

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use host::fake::FakeHost;
use host::linux::LinuxHost;
use host::{Bind, Host, MountSpec, OwnershipChange, WalkProgress};
use measure::{Program, Row};

const SUBJECT: &str = "plugins";

fn main() {
    let program = Program::start();
    let (mounts, files) = if program.is_short() { (1000, 1000) } else { (10_000, 100_000) };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut rates = Vec::new();
    for _ in 0..program.rounds(5) {
        rates.push(runtime.block_on(fake_steps()));
    }
    program.row(&Row::new(SUBJECT, "host: simulated kernel", "steps/s", &rates));
    if let Err(errno) = nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS) {
        program.skipped("the host on the real kernel", &format!("unshare(CLONE_NEWNS): {errno}"));
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    runtime.block_on(async {
        let host = LinuxHost::new();
        host.set_propagation(Path::new("/"), host::Propagation::Private, true).await.unwrap();
        host.mount(&MountSpec::new("tmpfs", scratch.path(), "tmpfs")).await.unwrap();
        look_ups(&program, &host, scratch.path(), mounts).await;
        ownership(&program, &host, scratch.path(), files).await;
    });
    drop(runtime);
    nix::mount::umount2(scratch.path(), nix::mount::MntFlags::MNT_DETACH).unwrap();
}

/// Steps a second, over the steps of a pod's volumes from mount to clean-up.
async fn fake_steps() -> f64 {
    const PODS: u32 = 20_000;
    let host = FakeHost::default();
    let global = Path::new("/var/lib/kubelet/plugins/globalmount");
    host.make_dir_all(global, 0o750).await.unwrap();
    host.mount(&MountSpec::new("tmpfs", global, "tmpfs")).await.unwrap();
    let began = Instant::now();
    let mut steps = 0u32;
    for pod in 0..PODS {
        let dir = Path::new("/var/lib/kubelet/pods").join(format!("pod-{pod}/volumes/csi/data"));
        let target = dir.join("mount");
        host.make_dir_all(&target, 0o750).await.unwrap();
        host.write_file(&dir.join("vol_data.json"), b"{}", 0o644).await.unwrap();
        host.bind(&Bind::new(global, &target)).await.unwrap();
        assert!(host.is_mount_point(&target).await.unwrap());
        host.unmount(&target).await.unwrap();
        host.remove_dir(&target).await.unwrap();
        host.remove_file(&dir.join("vol_data.json")).await.unwrap();
        host.remove_dir(&dir).await.unwrap();
        steps += 8;
    }
    f64::from(steps) / began.elapsed().as_secs_f64()
}

async fn look_ups(program: &Program, host: &LinuxHost, scratch: &Path, mounts: usize) {
    let source = scratch.join("source");
    host.make_dir_all(&source, 0o755).await.unwrap();
    for index in 0..mounts {
        let target = scratch.join(format!("mounts/{index}"));
        host.make_dir_all(&target, 0o755).await.unwrap();
        host.bind(&Bind::new(&source, &target)).await.unwrap();
    }
    let wanted = scratch.join(format!("mounts/{}", mounts / 2));
    let rounds = program.rounds(101);
    let one = times(rounds, async || drop(host.mount_of(&wanted).await.unwrap())).await;
    let check = times(rounds, async || assert!(host.is_mount_point(&wanted).await.unwrap())).await;
    let whole =
        times(program.rounds(11), async || assert!(host.mount_table().await.unwrap().at(&wanted).is_some()))
            .await;
    let alone = scratch.join("alone");
    host.make_dir_all(&alone, 0o755).await.unwrap();
    host.mount(&MountSpec::new("tmpfs", &alone, "tmpfs")).await.unwrap();
    let refs = times(rounds, async || assert!(host.references(&alone).await.unwrap().is_empty())).await;
    let what = format!("of {mounts} mounts");
    program.row(&Row::new(SUBJECT, format!("host: the whole table {what}"), "us", &whole));
    for (name, times) in [("one", one), ("references to one", refs), ("mount point check", check)] {
        program.row(&Row::new(SUBJECT, format!("host: {name} {what}"), "us", &times).floor(&whole));
    }
}

async fn ownership(program: &Program, host: &LinuxHost, scratch: &Path, files: usize) {
    let tree = scratch.join("tree");
    for index in 0..files {
        let dir = tree.join(format!("{}", index / 1000));
        if index % 1000 == 0 {
            std::fs::create_dir_all(&dir).unwrap();
        }
        std::fs::write(dir.join(index.to_string()), b"").unwrap();
    }
    let began = Instant::now();
    let change = OwnershipChange { gid: 1000, read_only: false };
    let progress = WalkProgress::new();
    host.change_ownership(&tree, change, &progress).await.unwrap();
    let ours = began.elapsed();
    assert!(progress.entries() > files as u64);
    let began = Instant::now();
    for (program, what) in [("chown", ":2000"), ("chmod", "g+rwX")] {
        assert!(Command::new(program).arg("-R").arg(what).arg(&tree).status().unwrap().success());
    }
    let theirs = began.elapsed();
    let row = Row::new(SUBJECT, format!("host: {files} files to a group"), "ms", &[ms(ours)]);
    program.row(&row.floor(&[ms(theirs)]));
    let root = host.metadata(&tree).await.unwrap();
    assert!(!change.root_matches(&root), "chown and chmod have changed the root");
}

/// The time of each round, in microseconds.
async fn times(rounds: usize, work: impl AsyncFn()) -> Vec<f64> {
    let mut times = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        let began = Instant::now();
        work().await;
        times.push(ms(began.elapsed()) * 1e3);
    }
    times
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
