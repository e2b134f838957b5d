//! Effects: each change is announced once, after it succeeded, and nothing else is announced.

use std::fmt::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Mutex};
use std::thread::{self, ThreadId};

use expect_test::expect;
use host::linux::LinuxHost;
use host::{
    Bind, Host as _, MountOptions, MountSpec, OwnershipChange, Propagation, Removal, WalkProgress, bind,
    effect,
};
use serial_test::file_serial;
use tracing::Dispatch;
use tracing::field::{Field, Visit};
use tracing_subscriber::layer::SubscriberExt as _;

use super::ground::{Ground, on_both, on_the_kernel};

/// Writes each event with target `effect` as a line.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<String>>);

impl<S: tracing::Subscriber> tracing_subscriber::Layer<S> for Lines {
    fn on_event(&self, event: &tracing::Event<'_>, _: tracing_subscriber::layer::Context<'_, S>) {
        if event.metadata().target() == effect::TARGET {
            let mut line = Line(String::new());
            event.record(&mut line);
            self.0.lock().unwrap().push_str(&format!("{}\n", line.0.trim_start()));
        }
    }
}

/// Notes the thread of each event with target `effect`.
#[derive(Clone, Default)]
struct Threads(Arc<Mutex<Vec<ThreadId>>>);

impl<S: tracing::Subscriber> tracing_subscriber::Layer<S> for Threads {
    fn on_event(&self, event: &tracing::Event<'_>, _: tracing_subscriber::layer::Context<'_, S>) {
        if event.metadata().target() == effect::TARGET {
            self.0.lock().unwrap().push(thread::current().id());
        }
    }
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        write!(self.0, " {field}={value:?}").unwrap();
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "effect" => write!(self.0, " {value}").unwrap(),
            name => write!(self.0, " {name}={value}").unwrap(),
        }
    }
}

/// A second subscriber. With a single one, `tracing` caches for the whole process the interest of the thread
/// that emits first, which may be a thread of another test without a subscriber.
static BESIDE: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(tracing_subscriber::registry()));

/// The effects announced by `work`, a line each.
async fn effects_of(work: impl Future<Output = ()>) -> String {
    LazyLock::force(&BESIDE);
    let lines = Lines::default();
    let subscriber = tracing_subscriber::registry().with(lines.clone());
    let _guard = tracing::subscriber::set_default(subscriber);
    work.await;
    std::mem::take(&mut lines.0.lock().unwrap())
}

/// Every method that changes something, also with nothing to change.
async fn everything(ground: &Ground) {
    let (host, at) = (&*ground.host, |name: &str| ground.path(name));
    host.make_dir_all(&at("a/b"), 0o755).await.unwrap();
    host.make_dir_all(&at("a/b"), 0o755).await.unwrap();
    host.make_dir(&at("c"), 0o755).await.unwrap();
    host.make_dir(&at("c"), 0o755).await.unwrap_err();
    host.write_file(&at("a/file"), b"x", 0o644).await.unwrap();
    host.create_file(&at("a/new"), 0o644).await.unwrap();
    host.symlink(&at("a/file"), &at("a/link")).await.unwrap();
    host.chmod(&at("a/file"), 0o2600).await.unwrap();
    host.lchown(&at("a/link"), Some(7), None).await.unwrap();
    host.rename(&at("a/file"), &at("a/moved")).await.unwrap();
    let mut options = MountOptions::new(["size=64k"]);
    options.push_sensitive("mode=700");
    host.mount(&MountSpec::new("tmpfs", at("a/b"), "tmpfs").with_options(options)).await.unwrap();
    host.bind(&Bind::new(at("a/b"), at("c"))).await.unwrap();
    host.remount_bind(&at("a/b"), &at("c"), &MountOptions::new(["ro", "nodev"])).await.unwrap();
    host.set_propagation(&at("c"), Propagation::Shared, true).await.unwrap();
    host.unmount(&at("c")).await.unwrap();
    host.unmount(&at("c")).await.unwrap();
    host.unmount(&at("missing")).await.unwrap_err();
    host.make_dirs_beneath(&at("c"), "x/y".as_ref(), 0o750).await.unwrap();
    let opened = host.open_beneath(&at("c"), "x".as_ref()).await.unwrap();
    host.bind_opened(&opened, &at("c/x/y")).await.unwrap();
    host.unmount_forced(&at("c/x/y")).await.unwrap();
    drop(opened);
    let change = OwnershipChange { gid: 9, read_only: false };
    host.change_ownership(&at("c"), change, &WalkProgress::new()).await.unwrap();
    host.remove_file(&at("a/link")).await.unwrap();
    host.remove_file(&at("a/moved")).await.unwrap();
    host.unmount(&at("a/b")).await.unwrap();
    host.remove_dir(&at("a/b")).await.unwrap();
    host.remove_dir(&at("a")).await.unwrap_err();
    host.remove_tree(&at("c"), Removal::OneFilesystem).await.unwrap();
    host.remove_tree(&at("c"), Removal::OneFilesystem).await.unwrap();
}

#[test]
fn each_change_is_announced_once_and_in_order() {
    on_both(async |ground| {
        let effects = effects_of(everything(ground)).await.replace(ground.root.to_str().unwrap(), "");
        expect![[r#"
            mkdir path=/a
            mkdir path=/a/b
            mkdir path=/c
            write path=/a/file
            write path=/a/new
            link path=/a/link to=/a/file
            chmod path=/a/file to=2600
            chown path=/a/link to=7:
            rename path=/a/file to=/a/moved
            mount path=/a/b source=tmpfs fstype=tmpfs options=size=64k,<masked>
            bind path=/c source=/a/b
            remount path=/c options=ro,nodev
            remount path=/c options=rshared
            umount path=/c
            mkdir path=/c/x
            mkdir path=/c/x/y
            bind path=/c/x/y source=/c/x
            umount path=/c/x/y
            chown path=/c to=:9
            unlink path=/a/link
            remove path=/a/moved
            umount path=/a/b
            rmdir path=/a/b
            remove path=/c
        "#]]
        .assert_eq(&effects);
    });
}

#[test]
#[file_serial(root)]
fn lock_effect_names_the_device_and_unlock_effect_the_backing_file() {
    on_both(async |ground| {
        let (disk, map) = (ground.disk(1 << 20).await, ground.path("map"));
        bind::device_node(&*ground.host, &disk, &map).await.unwrap();
        let mut device = PathBuf::new();
        let effects = effects_of(async {
            for _ in 0..2 {
                device = ground.host.lock_device(&map).await.unwrap();
                ground.owns_loop(&device);
            }
            for _ in 0..2 {
                ground.host.unlock_device(&device).await.unwrap();
            }
        });
        let mut effects = effects.await;
        let names = [(ground.root.as_path(), ""), (device.as_path(), "/dev/loopN")];
        for (path, name) in &names {
            effects = effects.replace(path.to_str().unwrap(), name);
        }
        // The simulated kernel announces no inode.
        let inode = |file: std::fs::Metadata| format!(" inode={}:{}", file.dev(), file.ino());
        let inode = std::fs::metadata(&map).map(inode).unwrap_or_default();
        let expected =
            format!("lock path=/map source=/dev/loopN\nunlock path=/dev/loopN source=/map{inode}\n");
        assert_eq!(effects, expected);
        bind::release_device_node(&*ground.host, &map).await.unwrap();
    });
}

/// A server that hangs below a mount would hold the thread for ever, and with it the manager.
#[test]
fn only_a_change_of_the_nodes_own_files_is_made_on_the_callers_thread() {
    on_the_kernel(async |ground| {
        LazyLock::force(&BESIDE);
        let root = ground.dir("node").await;
        ground.tmpfs("node/pods/volume").await;
        let threads = Threads::default();
        let _guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(threads.clone()));
        let node = LinuxHost::of_node(&root);
        for (host, directory, is_here) in [
            (node.clone(), "pods/one", true),
            (node, "pods/volume/two", false),
            (LinuxHost::new(), "pods/three", false),
        ] {
            host.make_dir(&root.join(directory), 0o755).await.unwrap();
            let by = threads.0.lock().unwrap().pop().unwrap();
            assert_eq!(by == thread::current().id(), is_here, "{directory}");
        }
    });
}
