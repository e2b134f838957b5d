//! Drivers that come and go with the sockets at which they register.

use std::os::unix::net::UnixListener;
use std::time::Duration;

use api::clock::{Clock, Instant, TokioClock, within};
use host::linux::LinuxHost;

use super::*;
use crate::plugin::csi::registration::watch;

/// Far longer than anything here takes.
const LONG: Duration = Duration::from_secs(60);

/// A clock on which every pause is over at once, and remembered.
#[derive(Debug, Default)]
struct Impatient(Mutex<Vec<Duration>>);

#[async_trait]
impl Clock for Impatient {
    fn now(&self) -> Instant {
        TokioClock.now()
    }

    async fn sleep_until(&self, moment: Instant) {
        self.sleep(moment - self.now()).await;
    }

    async fn sleep(&self, duration: Duration) {
        self.0.lock().unwrap().push(duration);
        tokio::task::yield_now().await;
    }
}

impl Scene {
    /// The next registration of a driver.
    async fn hears(&mut self) -> Registration {
        match within(&TokioClock, LONG, self.events.recv()).await {
            Some(Some(Event::Driver(registration))) => registration,
            other => panic!("not a registration: {other:?}"),
        }
    }
}

fn added() -> Registration {
    Registration::Added { driver: DRIVER.into(), endpoint: PathBuf::from("/csi.sock") }
}

#[tokio::test]
async fn a_driver_is_registered_as_long_as_its_socket_is_there() {
    let mut scene = Scene::new();
    let (host, dir) = (LinuxHost::shared(), scene.bench.path("registry"));
    let watching = watch::run(scene.registrar(), Arc::clone(&host), TokioClock::shared(), dir.clone());
    let watching = tokio::spawn(watching);
    while host.symlink_metadata(&dir).await.is_err() {
        TokioClock.sleep(Duration::from_millis(1)).await;
    }
    let place = dir.join("of-the-driver");
    let socket = place.join("reg.sock");
    host.make_dir(&place, 0o750).await.unwrap();
    for _ in 0..2 {
        let _listener = UnixListener::bind(&socket).unwrap();
        assert_eq!(scene.hears().await, added());
        host.make_dir_all(&dir.join("of-another"), 0o750).await.unwrap();
        host.remove_file(&socket).await.unwrap();
        assert_eq!(scene.hears().await, Registration::Removed { driver: DRIVER.into() });
    }
    assert_eq!(scene.statuses().len(), 2, "what others do changes nothing");
    watching.abort();
}

#[tokio::test]
async fn a_driver_that_cannot_be_registered_is_tried_less_often_with_time() {
    let mut scene = Scene::new();
    let (host, dir) = (LinuxHost::shared(), scene.bench.path("registry"));
    host.make_dir(&dir, 0o750).await.unwrap();
    let _listener = UnixListener::bind(dir.join("reg.sock")).unwrap();
    for _ in 0..10 {
        scene.bench.driver.fail("NodeGetInfo", Code::Unavailable);
    }
    let clock = Arc::new(Impatient::default());
    let watching = tokio::spawn(watch::run(scene.registrar(), host, Arc::clone(&clock) as _, dir));
    assert_eq!(scene.hears().await, added());
    let pauses: Vec<_> = clock.0.lock().unwrap().iter().map(Duration::as_millis).collect();
    assert_eq!(pauses, [500, 1000, 2000, 4000, 8000, 16_000, 32_000, 64_000, 122_000, 122_000]);
    // Far longer than the next attempt would need, if there was one.
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    assert_eq!(
        scene.statuses().last(),
        Some(&(true, String::new())),
        "once registered it is not tried again"
    );
    watching.abort();
}

#[tokio::test]
async fn a_driver_stays_when_another_cannot_come() {
    let mut scene = Scene::new();
    let (host, dir) = (LinuxHost::shared(), scene.bench.path("registry"));
    let place = dir.join("of-another");
    host.make_dir_all(&place, 0o750).await.unwrap();
    let _listener = UnixListener::bind(dir.join("reg.sock")).unwrap();
    let watching = watch::run(scene.registrar(), host, TokioClock::shared(), dir);
    let watching = tokio::spawn(watching);
    assert_eq!(scene.hears().await, added());
    let _another = UnixListener::bind(place.join("reg.sock")).unwrap();
    while scene.statuses().len() < 2 {
        TokioClock.sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(scene.registrations(), [], "its name is taken");
    watching.abort();
}
