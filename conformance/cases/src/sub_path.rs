//! Sub-paths: a container sees a part of a volume, and nothing outside of it.

use crate::prelude::*;

/// A missing sub-path is made with the mode of the volume's root, so that every user of the volume can write to it. Its
/// bind is removed before the volume.
///
/// Kubernetes, Volumes, Using subPath: a sub-path inside the referenced volume instead of its root.
#[case(needs = [Owners])]
async fn missing_directory_is_made(cx: &mut Cx) -> Result {
    let web =
        cx.pod("web").inline("cache", memory(1 << 20), "/cache").inline("cache", memory(1 << 20), "/part");
    let web = web.sub_path("a/b").fs_group(2000).run_as(1000).start().await?;
    cx.forget().await?;

    let inside = web.container().await?;
    inside.writes("/part/greeting", "hello").await?;
    inside
        .sees(expect![[r#"
        /cache                   dir  3777 0:2000  rw  tmpfs size=1024k
          a                      dir  3777 0:2000
            b                    dir  3777 0:2000
              greeting           file  0644 1000:2000  "hello"
        /part                    dir  3777 0:2000  rw
          greeting               file  0644 1000:2000  "hello"
    "#]])
        .await?;
    cx.sees(expect![[r#"
        bind   <sub-path:cache/web/main/1>     =  <web>/cache/a/b
    "#]])
        .await?;

    web.stop().await?;
    cx.sees(expect![[r#"
        umount <sub-path:cache/web/main/1>
        umount <web>/cache
        rmdir  <web>/cache
    "#]])
        .await
}

/// A link may lead to another place in its volume, but never out of it: the container does not start, the event names
/// no path of the node, and nothing is left mounted.
///
/// Kubernetes, CVE-2017-1002101 and CVE-2021-25741: a sub-path must not give access outside of the volume.
#[case(needs = [])]
async fn link_out_of_the_volume_is_refused(cx: &mut Cx) -> Result {
    let machine = cx.machine()?;
    let volume = machine.join("volume");
    std::fs::create_dir_all(volume.join("real/deep"))?;
    std::fs::write(volume.join("real/deep/greeting"), "hello")?;
    std::fs::write(volume.join("file"), "x")?;
    std::os::unix::fs::symlink("real/deep", volume.join("inside"))?;
    std::os::unix::fs::symlink("/etc", volume.join("outside"))?;
    std::os::unix::fs::symlink("../../..", volume.join("above"))?;
    let source = || host_path(&volume.display().to_string(), "Directory");

    let good = cx.pod("good").inline("data", source(), "/data").sub_path("inside").start().await?;
    good.container()
        .await?
        .sees(expect![[r#"
        /data                    dir  0755 0:0  rw
          greeting               file  0644 0:0  "hello"
    "#]])
        .await?;
    for (pod, path, error) in [
        (
            "a",
            "outside",
            expect![[r#"
            Failed to prepare subPath for volumeMount "data" of container "main".
        "#]],
        ),
        (
            "b",
            "outside/passwd",
            expect![[r#"
            Failed to prepare subPath for volumeMount "data" of container "main".
        "#]],
        ),
        (
            "c",
            "above/etc",
            expect![[r#"
            Failed to prepare subPath for volumeMount "data" of container "main".
        "#]],
        ),
        (
            "d",
            "outside/made/here",
            expect![[r#"
            Failed to prepare subPath for volumeMount "data" of container "main".
        "#]],
        ),
        (
            "e",
            "file/below",
            expect![[r#"
            Failed to prepare subPath for volumeMount "data" of container "main".
        "#]],
        ),
        (
            "f",
            "/etc",
            expect![[r#"
            Error SubPath `/etc` must not be an absolute path.
        "#]],
        ),
        (
            "g",
            "real/../../etc",
            expect![[r#"
            Unable to provision SubPath `real/../../etc`: must not contain '..'.
        "#]],
        ),
    ] {
        let web = cx.pod(pod).inline("data", source(), "/data").sub_path(path).start().await?;
        web.container_is_refused(error).await?;
    }
    cx.sees(expect![[r#"
        bind   <sub-path:data/good/main/0>     =  <machine>/volume/real/deep
    "#]])
        .await
}

/// A sub-path may be a file, a socket or a pipe, and the container gets just that.
///
/// Kubernetes, Volumes, Using subPath.
#[case(needs = [])]
async fn file_socket_and_pipe_are_bound(cx: &mut Cx) -> Result {
    let volume = cx.machine()?.join("volume");
    std::fs::create_dir_all(&volume)?;
    std::fs::write(volume.join("file"), "hello")?;
    std::os::unix::net::UnixListener::bind(volume.join("socket"))?;
    nix::unistd::mkfifo(&volume.join("pipe"), nix::sys::stat::Mode::from_bits_truncate(0o644))?;
    let source = || host_path(&volume.display().to_string(), "Directory");

    let web = cx.pod("web").inline("data", source(), "/file").sub_path("file");
    let web = web.inline("data", source(), "/socket").sub_path("socket");
    let web = web.inline("data", source(), "/pipe").sub_path("pipe").start().await?;
    web.container()
        .await?
        .sees(expect![[r#"
        /file                    file  0644 0:0  "hello"  rw
        /socket                  socket  0755 0:0  rw
        /pipe                    fifo  0644 0:0  rw
    "#]])
        .await?;
    cx.sees(expect![[r#"
        bind   <sub-path:data/web/main/0>  =  <machine>/volume/file
        bind   <sub-path:data/web/main/1>  =  <machine>/volume/socket
        bind   <sub-path:data/web/main/2>  =  <machine>/volume/pipe
    "#]])
        .await?;

    web.stop().await?;
    cx.sees(expect![[r#"
        umount <sub-path:data/web/main/0>
        umount <sub-path:data/web/main/1>
        umount <sub-path:data/web/main/2>
    "#]])
        .await
}

/// A restarted container uses the bind of its sub-path again, unless another file has taken the name meanwhile: then it
/// sees that file.
///
/// Kubernetes, Volumes, Using subPath: resolved when the container starts.
#[case(needs = [])]
async fn resolved_at_each_start(cx: &mut Cx) -> Result {
    let web = cx.pod("web").inline("cache", empty_dir(), "/all").inline("cache", empty_dir(), "/part");
    let web = web.sub_path("part").start().await?;
    let inside = web.container().await?;
    inside.writes("/part/greeting", "first").await?;
    cx.forget().await?;

    let inside = web.container().await?;
    inside.reads("/part/greeting", "first").await?;
    cx.sees(expect![""]).await?;

    inside.renames("/all/part", "/all/old").await?;
    // The bind follows the directory, not its name.
    inside.reads("/part/greeting", "first").await?;
    let inside = web.container().await?;
    inside
        .sees(expect![[r#"
        /all                     dir  0777 0:0  rw
          old                    dir  0777 0:0
            greeting             file  0644 0:0  "first"
          part                   dir  0777 0:0
        /part                    dir  0777 0:0  rw
    "#]])
        .await?;
    cx.sees(expect![[r#"
        umount <sub-path:cache/web/main/1>
        bind   <sub-path:cache/web/main/1>     =  <web>/cache/part
    "#]])
        .await
}

/// Variables of the container's environment are expanded in subPathExpr, whatever their source. A missing or empty
/// variable keeps the container from starting, and so does a value that leads out of the volume; the event does not
/// show the value.
///
/// Kubernetes, Volumes, Using subPath with expanded environment variables.
#[case(needs = [])]
async fn variables_are_expanded(cx: &mut Cx) -> Result {
    let pod = |name, path| {
        let pod = cx.pod(name).inline("cache", empty_dir(), "/cache").sub_path_expr(path);
        pod.env("NAME", "web").env("EMPTY", "").env("UP", "..").env("ROOT", "/etc")
    };
    cx.config_map("settings", &[("color", "blue")])?;
    cx.secret("keys", &[("word", "x")])?;
    let good = pod("good", "logs/$(NAME)/$(ALL)").inline("cache", empty_dir(), "/whole");
    let good = good.resource("limits.memory", "64Mi").env_from("POD", from_field("metadata.name"));
    let good = good.env_from("MEMORY", from_amount("limits.memory", "1Mi"));
    let good = good.env_from("COLOR", from_key(HolderKind::ConfigMap, "settings", "color"));
    let good = good.env_from("WORD", from_key(HolderKind::Secret, "keys", "word"));
    let good = good.env("ALL", "$(POD)-$(MEMORY)-$(COLOR)-$(WORD)").start().await?;
    let inside = good.container().await?;
    inside.writes("/cache/greeting", "hello").await?;
    inside.reads("/whole/logs/web/good-64-blue-x/greeting", "hello").await?;
    let keyless = pod("keyless", "$(NAME)");
    let keyless = keyless.env_from("SIZE", from_key(HolderKind::ConfigMap, "settings", "size"));
    keyless
        .start()
        .await?
        .container_is_refused(expect![[r#"
            No value for variable "SIZE": couldn't find key size in ConfigMap default/settings.
        "#]])
        .await?;
    for (name, path, error) in [
        (
            "a",
            "$(NOPE)/$(EMPTY)",
            expect![[r#"
            Missing value for NOPE, EMPTY.
        "#]],
        ),
        (
            "b",
            "$(UP)/x",
            expect![[r#"
            Unable to provision SubPath `$(UP)/x`: must not contain '..'.
        "#]],
        ),
        (
            "c",
            "$(ROOT)",
            expect![[r#"
            Error SubPath `$(ROOT)` must not be an absolute path.
        "#]],
        ),
    ] {
        pod(name, path).start().await?.container_is_refused(error).await?;
    }
    Ok(())
}

/// The sub-path of a pod that is deleted while the node is down is unmounted before its volume by the restarted node.
///
/// Kubernetes, Pod Lifecycle: volumes are unmounted when all of a pod's containers have ended.
#[case(needs = [Filesystem, Root, Persistent])]
async fn unmounted_before_its_volume_after_a_restart(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let web = cx.pod("web").volume(&data, "/data").sub_path("a").start().await?;
    let inside = web.container().await?;
    inside.writes("/data/greeting", "hello").await?;
    cx.forget().await?;

    cx.node().kill().await?;
    inside.reads("/data/greeting", "hello").await?;
    web.remove().await?;
    cx.node().start().await?;
    cx.sees(expect![[r#"
        umount <sub-path:data/web/main/0>
        csi    Unpublish data web
        umount <publish:data/web>
        csi    Unstage data
    "#]])
        .await
}

/// The number of container starts while the sub-path is swapped.
const STARTS: usize = 100;

/// A directory that is swapped for a link out of the volume, again and again while containers start, never shows a
/// container what is outside.
///
/// Kubernetes, CVE-2021-25741: a sub-path must not give access outside of the volume, whatever is swapped meanwhile.
#[case(needs = [])]
async fn swapped_directory_never_leads_out(cx: &mut Cx) -> Result {
    let machine = cx.machine()?;
    let volume = machine.join("volume");
    for (directory, text) in [("volume/part", "inside"), ("outside", "outside")] {
        std::fs::create_dir_all(machine.join(directory))?;
        std::fs::write(machine.join(directory).join("where"), text)?;
    }
    std::os::unix::fs::symlink("../outside", volume.join("link"))?;
    let source = host_path(&volume.display().to_string(), "Directory");
    let web = cx.pod("web").inline("data", source, "/data").sub_path("part").start().await?;
    let racer = Swapping::start(&volume.join("part"), &volume.join("link"));
    let mut seen = 0;
    for _ in 0..STARTS {
        // The container is refused if it meets the link.
        if let Ok(inside) = web.container().await {
            inside.reads("/data/where", "inside").await?;
            seen += 1;
        }
    }
    let swaps = racer.stop();
    cx.same("whether any container started", &(seen > 0).to_string(), "true")?;
    cx.same("whether enough was swapped", &(swaps > STARTS).to_string(), "true")?;
    web.stop().await?;
    cx.forget().await
}

/// A thread that swaps two names.
struct Swapping {
    done: std::sync::Arc<std::sync::atomic::AtomicBool>,
    thread: std::thread::JoinHandle<usize>,
}

impl Swapping {
    fn start(one: &std::path::Path, other: &std::path::Path) -> Self {
        use std::sync::atomic::Ordering::Relaxed;
        let done = std::sync::Arc::<std::sync::atomic::AtomicBool>::default();
        let (until, one, other) = (done.clone(), one.to_owned(), other.to_owned());
        let thread = std::thread::spawn(move || {
            let here = nix::fcntl::AT_FDCWD;
            let exchange = nix::fcntl::RenameFlags::RENAME_EXCHANGE;
            let swap = || nix::fcntl::renameat2(here, &one, here, &other, exchange);
            let swaps = std::iter::from_fn(|| (!until.load(Relaxed)).then(swap)).filter(|swap| swap.is_ok());
            swaps.count()
        });
        Self { done, thread }
    }

    fn stop(self) -> usize {
        self.done.store(true, std::sync::atomic::Ordering::Relaxed);
        self.thread.join().unwrap_or_default()
    }
}
