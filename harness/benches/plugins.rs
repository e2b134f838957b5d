//! What volumes cost that no driver makes, measured beside the obvious other way: `cargo xtask bench plugins`, as root.
//!
//! - a local volume with many files given to a group, beside `chown -R` and `chmod -R`; and once more, when its
//!   root says that nothing is to be done;
//! - a secret with many keys, beside a bare loop that writes, links and switches the same files;
//! - many local volumes of one pod bound and unbound, beside a bare loop of the same system calls.
//!
//! All of it goes through the manager, with the API in memory and no witness: what is beside it has no manager.
//! Ratios travel between machines, times do not.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use api::clock::AdvancingClock;
use api::names::PodUid;
use api::pod::{Content, PodSecurity, VolumeMount};
use api::{
    Bytes, Container, Meta, PersistentSource, Pod, PodVolume, Secret, Sensitive, VolumeMode, VolumeSource,
};
use harness::api_server::ApiServer;
use harness::journal::Journal;
use harness::sandbox::{Sandbox, SandboxOptions};
use harness::symbols::Symbols;
use harness::tmpfs::Tmpfs;
use host::linux::LinuxHost;
use measure::{Program, Row};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use volume_manager::plugin::csi::socket::SocketDialer;
use volume_manager::plugin::registry;
use volume_manager::{Config, Parts, PodState, VolumeManager};

const LIMIT: Duration = Duration::from_secs(600);

const SUBJECT: &str = "plugins";

const KEYS: usize = 1000;

fn main() -> ExitCode {
    if let Some(code) = harness::main() {
        return code;
    }
    let program = Program::start();
    if !nix::unistd::geteuid().is_root() {
        program.skipped(SUBJECT, "needs root, to give files away");
        return ExitCode::SUCCESS;
    }
    measure::ended(measure(&program))
}

fn measure(program: &Program) -> Result<()> {
    let (files, binds) = if program.is_short() { (10_000, 100) } else { (1_000_000, 1000) };
    let sandbox = Sandbox::enter(SandboxOptions { name: "bench".to_owned(), ..Default::default() })?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let node = Node::start(&sandbox).await?;
        ownership(program, &node, files).await?;
        keys(program, &node).await?;
        volumes(program, &node, binds).await
    })
}

/// The manager, as a kubelet without drivers would hold it.
struct Node {
    api: ApiServer,
    manager: VolumeManager,
    machine: Tmpfs,
}

impl Node {
    async fn start(sandbox: &Sandbox) -> Result<Self> {
        let layout = sandbox.layout();
        let api = ApiServer::new(Journal::new(Symbols::new(layout.clone()), None));
        api.add_node("node-1")?;
        fs::create_dir_all(layout.machine())?;
        let machine = Tmpfs::mount(&layout.machine(), 4 << 30)?;
        mount(None::<&str>, machine.path(), None::<&str>, MsFlags::MS_REMOUNT, Some("nr_inodes=0"))?;
        let parts = Parts {
            api: api.seen_by(contracts::event::Client::Case),
            host: Arc::new(LinuxHost::new()),
            clock: Arc::new(AdvancingClock::default()),
            dialer: Arc::new(SocketDialer),
            registry: registry::kubelet(),
            containers: None,
        };
        let manager = VolumeManager::start(Config::new("node-1", layout.root()), parts);
        manager.sources_ready();
        Ok(Self { api, manager, machine })
    }

    /// The times to mount and to unmount a pod's volumes.
    async fn pod(&self, pod: Pod) -> Result<(Duration, Duration)> {
        let uid = self.come(&pod).await?;
        let way_in = uid.1;
        Ok((way_in, self.go(&uid.0).await?))
    }

    async fn come(&self, pod: &Pod) -> Result<(PodUid, Duration)> {
        let pod = self.api.create(pod.clone())?;
        let uid = pod.uid();
        let begin = Instant::now();
        self.manager.add_pod(pod);
        self.manager.wait_mounted(&uid, LIMIT).await?;
        let took = begin.elapsed();
        self.manager.wait_idle(LIMIT).await?;
        Ok((uid, took))
    }

    async fn go(&self, uid: &PodUid) -> Result<Duration> {
        let begin = Instant::now();
        self.manager.set_pod_state(uid, PodState::RuntimeGone);
        self.manager.wait_unmounted(uid, LIMIT).await?;
        let took = begin.elapsed();
        self.manager.remove_pod(uid);
        self.manager.wait_idle(LIMIT).await?;
        Ok(took)
    }

    fn local(&self, name: &str, path: &Path) -> Result<()> {
        let path = path.to_string_lossy().into_owned();
        let source = PersistentSource::Local { path, fs_type: String::new() };
        Ok(self.api.add_volume(name, source, VolumeMode::Filesystem, Bytes(1 << 20))?)
    }
}

/// A pod whose one container has these volumes.
fn pod(name: &str, volumes: impl Iterator<Item = (String, VolumeSource)>) -> Pod {
    let volumes: Vec<PodVolume> =
        volumes.map(|(name, source)| PodVolume { name: name.as_str().into(), source }).collect();
    let mounts = volumes.iter().map(|volume| VolumeMount {
        volume: volume.name.to_string(),
        path: format!("/{}", volume.name),
        ..VolumeMount::default()
    });
    let container = Container { name: "c".to_owned(), mounts: mounts.collect(), ..Container::default() };
    let mut meta = Meta::named("default", name);
    meta.uid = format!("uid-{name}");
    Pod { meta, node: "node-1".to_owned(), volumes, containers: vec![container], ..Pod::default() }
}

fn claim(name: &str) -> (String, VolumeSource) {
    (name.to_owned(), VolumeSource::Claim { claim: name.to_owned(), read_only: false })
}

async fn ownership(program: &Program, node: &Node, files: usize) -> Result<()> {
    let tree = node.machine.path().join("tree");
    for index in 0..files {
        let directory = tree.join((index / 1000).to_string());
        if index % 1000 == 0 {
            fs::create_dir_all(&directory)?;
        }
        fs::write(directory.join(index.to_string()), b"")?;
    }
    node.local("tree", &tree)?;
    let (mut ours, mut theirs, mut none) = (vec![], vec![], vec![]);
    // Each has something to do: the group is another one each time.
    for round in 0..u32::try_from(program.rounds(3))? {
        let security = PodSecurity {
            fs_group: Some(3000 + round),
            fs_group_on_root_mismatch: true,
            ..PodSecurity::default()
        };
        let mut walked = pod(&format!("walked-{round}"), [claim("tree")].into_iter());
        walked.security = security.clone();
        ours.push(node.pod(walked).await?.0);
        let mut matching = pod(&format!("matching-{round}"), [claim("tree")].into_iter());
        matching.security = security;
        none.push(node.pod(matching).await?.0);
        let begin = Instant::now();
        for (program, what) in [("chown", format!(":{}", 2000 + round)), ("chmod", "g+rwX".to_owned())] {
            let done = Command::new(program).arg("-R").arg(what).arg(&tree).status()?;
            ensure!(done.success(), "{program} failed");
        }
        theirs.push(begin.elapsed());
    }
    row(program, &format!("{files} files to a group (chown, chmod)"), &ours, &theirs);
    row(program, "  the root has the group already", &none, &theirs);
    Ok(())
}

async fn keys(program: &Program, node: &Node) -> Result<()> {
    let value = b"0123456789abcdef";
    let data = (0..KEYS).map(|index| (format!("key-{index:04}"), Sensitive::new(value.to_vec())));
    node.api.create(Secret { meta: Meta::named("default", "many"), data: data.collect() })?;
    let content = Content { name: "many".to_owned(), default_mode: 0o644, ..Content::default() };
    let (mut ours, mut bare) = (vec![], vec![]);
    for round in 0..program.rounds(5) {
        let source = VolumeSource::Secret(content.clone());
        let volume = ("many".to_owned(), source);
        ours.push(node.pod(pod(&format!("keys-{round}"), [volume].into_iter())).await?.0);
        let begin = Instant::now();
        bare_keys(&node.machine.path().join(format!("keys-{round}")), value)?;
        bare.push(begin.elapsed());
    }
    row(program, &format!("{KEYS} keys at once (write, chmod, link)"), &ours, &bare);
    Ok(())
}

/// The least work for these keys: one file each.
fn bare_keys(directory: &Path, value: &[u8]) -> Result<()> {
    let generation = directory.join("..generation");
    fs::create_dir_all(&generation)?;
    for index in 0..KEYS {
        let file = generation.join(format!("key-{index:04}"));
        fs::write(&file, value)?;
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644))?;
    }
    symlink("..generation", directory.join("..data_tmp"))?;
    fs::rename(directory.join("..data_tmp"), directory.join("..data"))?;
    for index in 0..KEYS {
        symlink(format!("..data/key-{index:04}"), directory.join(format!("key-{index:04}")))?;
    }
    Ok(())
}

async fn volumes(program: &Program, node: &Node, binds: usize) -> Result<()> {
    let source = |index: usize| node.machine.path().join(format!("sources/{index}"));
    for index in 0..binds {
        fs::create_dir_all(source(index))?;
        node.local(&format!("bind-{index}"), &source(index))?;
    }
    let (mut ours, mut bare) = (vec![], vec![]);
    for round in 0..program.rounds(5) {
        let volumes = (0..binds).map(|index| claim(&format!("bind-{index}")));
        ours.push(node.pod(pod(&format!("binds-{round}"), volumes)).await?);
        bare.push(bare_binds(&node.machine.path().join("targets"), &source, binds)?);
    }
    let way = |all: &[(Duration, Duration)], of: fn(&(Duration, Duration)) -> Duration| {
        all.iter().map(of).collect::<Vec<_>>()
    };
    let (way_in, way_out) = (|both: &(Duration, Duration)| both.0, |both: &(Duration, Duration)| both.1);
    row(program, &format!("{binds} volumes bound (mkdir, mount)"), &way(&ours, way_in), &way(&bare, way_in));
    row(program, &format!("{binds} volumes unbound (umount)"), &way(&ours, way_out), &way(&bare, way_out));
    Ok(())
}

fn bare_binds(
    targets: &Path,
    source: &impl Fn(usize) -> PathBuf,
    binds: usize,
) -> Result<(Duration, Duration)> {
    let target = |index: usize| targets.join(index.to_string());
    let begin = Instant::now();
    for index in 0..binds {
        fs::create_dir_all(target(index))?;
        let bind = |flags| mount(Some(&source(index)), &target(index), None::<&str>, flags, None::<&str>);
        bind(MsFlags::MS_BIND)?;
        bind(MsFlags::MS_BIND | MsFlags::MS_REMOUNT)?;
    }
    let way_in = begin.elapsed();
    let begin = Instant::now();
    for index in 0..binds {
        umount2(&target(index), MntFlags::empty()).context("cannot unmount")?;
        fs::remove_dir(target(index))?;
    }
    Ok((way_in, begin.elapsed()))
}

fn row(program: &Program, name: &str, manager: &[Duration], beside: &[Duration]) {
    let ms = |times: &[Duration]| times.iter().map(|time| time.as_secs_f64() * 1e3).collect::<Vec<_>>();
    program.row(&Row::new(SUBJECT, name, "ms", &ms(manager)).floor(&ms(beside)));
}
