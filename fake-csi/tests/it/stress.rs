//! Many clients at once with valid and invalid calls, and a driver that is killed meanwhile.
//!
//! Half of the clients run whole cycles on a volume of their own, whose data must survive. The other half make random
//! calls on volumes that all clients share. Afterwards the books must agree with the kernel.
//!
//! `FAKE_CSI_STRESS_CLIENTS`, `FAKE_CSI_STRESS_SECONDS` and `FAKE_CSI_STRESS_KILLS` set the length of the tests.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use csi_proto::v1::volume_capability::access_mode::Mode;
use csi_proto::v1::{self, VolumeCapability};
use serial_test::file_serial;
use tonic::{Code, Status};

use crate::world::{Csi, World, block, create, in_namespace, mounted, publish, stage, text};

mod chaos;
mod judge;

const WRITER: Mode = Mode::SingleNodeWriter;

/// State that the clients of a run share.
struct Run {
    root: PathBuf,
    stop: Cell<bool>,
    /// Whether the driver is killed meanwhile: then a call without an answer is repeated.
    killed: bool,
    cycles: Cell<u64>,
    calls: Cell<u64>,
    /// Ids of the shared volumes, by number.
    ids: RefCell<BTreeMap<u64, String>>,
}

impl Run {
    fn new(world: &World, killed: bool) -> Rc<Self> {
        Rc::new(Self {
            root: world.root.clone(),
            stop: Cell::default(),
            killed,
            cycles: Cell::default(),
            calls: Cell::default(),
            ids: RefCell::default(),
        })
    }

    fn goes_on(&self) -> bool {
        !self.stop.get()
    }
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |value| value.parse().unwrap())
}

#[test]
#[file_serial(root)]
fn concurrent_clients_lose_no_data_and_leak_nothing() {
    in_namespace(async |mut world| {
        let csi = world.start(&[]).await;
        let run = Run::new(&world, false);
        let clients = start_clients(&csi, &run, setting("FAKE_CSI_STRESS_CLIENTS", 16));
        tokio::time::sleep(Duration::from_secs(setting("FAKE_CSI_STRESS_SECONDS", 3))).await;
        finish(&mut world, csi, &run, clients).await;
    });
}

#[test]
#[file_serial(root)]
fn driver_killed_at_random_loses_no_data_and_leaks_nothing() {
    in_namespace(async |mut world| {
        let mut csi = world.start(&[]).await;
        let run = Run::new(&world, true);
        let clients = start_clients(&csi, &run, setting("FAKE_CSI_STRESS_CLIENTS", 8));
        let mut dice = Dice(0x5eed);
        for _ in 0..setting("FAKE_CSI_STRESS_KILLS", 8) {
            tokio::time::sleep(Duration::from_millis(dice.below(150))).await;
            csi = world.restart().await;
        }
        finish(&mut world, csi, &run, clients).await;
    });
}

fn start_clients(csi: &Csi, run: &Rc<Run>, count: u64) -> Vec<tokio::task::JoinHandle<()>> {
    (0..count)
        .map(|number| {
            let (csi, run) = (csi.clone(), Rc::clone(run));
            tokio::task::spawn_local(async move {
                let mut dice = Dice(number + 1);
                if number % 2 == 0 {
                    cycles(csi, &run, number, &mut dice).await
                } else {
                    chaos::calls(csi, &run, &mut dice).await
                }
            })
        })
        .collect()
}

/// Stops all clients, compares the books with the kernel, and deletes everything by valid calls.
async fn finish(world: &mut World, mut csi: Csi, run: &Run, clients: Vec<tokio::task::JoinHandle<()>>) {
    run.stop.set(true);
    for client in clients {
        client.await.unwrap();
    }
    let (cycles, calls) = (run.cycles.get(), run.calls.get());
    println!("{cycles} cycles with data, {calls} random calls");
    assert!(cycles > 0 && calls > 0);
    judge::assert_books_agree_with_the_kernel(world).await;
    judge::take_down(world, &mut csi).await;
    world.assert_clean().await;
}

/// Whole cycles on a volume of the client's own, with data in it.
async fn cycles(mut csi: Csi, run: &Run, client: u64, dice: &mut Dice) {
    let mut round = 0;
    while run.goes_on() {
        round += 1;
        let is_block = dice.below(4) == 0;
        let capability = || if is_block { block(WRITER) } else { mounted("", WRITER) };
        let name = format!("own-{client}-{round}");
        let volume = until_ok(run, async || {
            let made = csi.clone().controller.create_volume(create(&name, capability())).await?;
            Ok(made.into_inner().volume.unwrap())
        })
        .await;
        let own = Own {
            id: volume.volume_id,
            staging: run.root.join(format!("node/own-{client}/staging")),
            target: run.root.join(format!("node/own-{client}/target")),
            capability: capability(),
        };
        std::fs::create_dir_all(&own.staging).unwrap();
        for visit in 0..1 + dice.below(3) {
            own.visit(&mut csi, run, visit).await;
        }
        until_ok(run, async || csi.clone().delete(&own.id).await).await;
        run.cycles.set(run.cycles.get() + 1);
    }
}

struct Own {
    id: String,
    staging: PathBuf,
    target: PathBuf,
    capability: VolumeCapability,
}

impl Own {
    /// Publishes the volume, checks the data of the last visit, writes new data, and unstages it.
    async fn visit(&self, csi: &mut Csi, run: &Run, visit: u64) {
        let staged = async || {
            let request = stage(&self.id, &self.staging, self.capability.clone());
            csi.clone().node.node_stage_volume(request).await.map(drop)
        };
        until_ok(run, staged).await;
        let published = async || {
            let request = publish(&self.id, &self.staging, &self.target, self.capability.clone());
            csi.clone().node.node_publish_volume(request).await.map(drop)
        };
        until_ok(run, published).await;
        if visit > 0 {
            assert_eq!(self.read(), format!("{} {}", self.id, visit - 1), "data of an earlier visit");
        }
        self.write(&format!("{} {visit}", self.id));
        until_ok(run, async || csi.clone().unpublish(&self.id, &self.target).await).await;
        assert!(!self.target.exists());
        until_ok(run, async || csi.clone().unstage(&self.id, &self.staging).await).await;
    }

    fn is_device(&self) -> bool {
        matches!(self.capability.access_type, Some(v1::volume_capability::AccessType::Block(_)))
    }

    fn read(&self) -> String {
        let text = match self.is_device() {
            true => {
                use std::io::Read as _;
                let mut sector = vec![0; 64];
                std::fs::File::open(&self.target).unwrap().read_exact(&mut sector).unwrap();
                String::from_utf8(sector).unwrap()
            }
            false => std::fs::read_to_string(self.target.join("sentinel")).unwrap(),
        };
        text.trim_end_matches('\0').to_owned()
    }

    fn write(&self, text: &str) {
        let path = if self.is_device() { self.target.clone() } else { self.target.join("sentinel") };
        let mut options = std::fs::File::options();
        let mut file =
            options.write(true).create(!self.is_device()).truncate(!self.is_device()).open(path).unwrap();
        std::io::Write::write_all(&mut file, text.as_bytes()).unwrap();
    }
}

/// Repeats a call until it is OK, as long as the driver is only unavailable or busy.
async fn until_ok<T>(run: &Run, mut call: impl AsyncFnMut() -> Result<T, Status>) -> T {
    loop {
        match call().await {
            Ok(done) => return done,
            Err(status) if status.code() == Code::Aborted || (run.killed && is_unavailable(&status)) => {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Err(status) => panic!("final error: {status:?}"),
        }
    }
}

/// Whether the request or its answer was lost with the driver.
fn is_unavailable(status: &Status) -> bool {
    let message = status.message();
    let lost =
        message.contains("transport") || message.contains("h2 protocol") || message.contains("connect");
    matches!(status.code(), Code::Unavailable | Code::Cancelled) || (status.code() == Code::Unknown && lost)
}

/// Random numbers from a fixed seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % bound
    }
}

fn path_of(run: &Run, volume: u64, what: &str) -> PathBuf {
    let directory = run.root.join(format!("node/shared-{volume}"));
    std::fs::create_dir_all(directory.join("staging")).unwrap();
    directory.join(what)
}

fn lossy(path: &Path) -> String {
    text(path)
}
