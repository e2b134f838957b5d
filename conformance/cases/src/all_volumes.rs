//! A pod with eight kinds of volumes at once: its life, and kills of its node.

use crate::prelude::*;

/// A pod with eight kinds of volumes sees the content, mode and owner of each, and its teardown leaves nothing.
///
/// Kubernetes, Volumes: a Pod can use any number of volume types simultaneously.
#[case(needs = [Filesystem, Root, Owners, Loop, Persistent])]
async fn pod_is_set_up_and_torn_down(cx: &mut Cx) -> Result {
    let sources = Sources::make(cx).await?;
    let web = sources.pod(cx, "web").start().await?;
    let inside = web.container().await?;
    inside.writes("/data/greeting", "hello").await?;
    inside.writes("/dir/greeting", "hello").await?;
    inside.writes("/xvda", "hello").await?;
    cx.sees(expect![[r#"
        mkdir  <web>/cache
        csi    Stage data
        csi    Publish data web
        mount  <publish:data/web>
        mkdir  <web>/dir
        bind   <web>/dir                   =  <machine>/local
        mount  <global:disk>               ext4
        mkdir  <web>/disk
        bind   <web>/disk                  =  <global:disk>
        mkdir  <web>/fast
        mount  <web>/fast                  tmpfs
        bind   <sub-path:fast/web/main/5>  =  <web>/fast/a
        mkdir  <web>/keys
        mount  <web>/keys                  tmpfs
        mkdir  <web>/me
        mount  <web>/me                    tmpfs
        mkdir  <web>/mix
        mount  <web>/mix                   tmpfs
        bind   <map:raw/web>               =  <device:raw>
        link   <web>/raw                   ->  <device:raw>
        lock   <map:raw/web>
        mkdir  <web>/settings
    "#]])
        .await?;
    inside
        .sees(expect![[r#"
        /data                    dir  rw
          greeting               file  "hello"
        /dir                     dir  2775 0:2000  rw
          greeting               file  0644 0:2000  "hello"
        /disk                    dir  2775 0:2000  rw
        /cache                   dir  2777 0:2000  rw
        /fast                    dir  3777 0:2000  rw  tmpfs size=1024k
          a                      dir  3777 0:2000
        /part                    dir  3777 0:2000  rw
        /here                    dir  0755 0:0  rw  tmpfs size=16384k
          local                  dir  2775 0:2000
            greeting             file  0644 0:2000  "hello"
        /mix                     dir  3777 0:2000  ro  tmpfs
          ..data                 link  -> ..generation_000001
          ..generation_000001    dir  2755 0:2000
            color                file  0644 0:2000  "blue"
            name                 file  0644 0:2000  "web"
            token                file  0640 0:2000  "token-web-1"
          color                  link  -> ..data/color
          name                   link  -> ..data/name
          token                  link  -> ..data/token
        /settings                dir  2777 0:2000  ro
          ..data                 link  -> ..generation_000001
          ..generation_000001    dir  2755 0:2000
            color                file  0644 0:2000  "blue"
          color                  link  -> ..data/color
        /keys                    dir  3777 0:2000  ro  tmpfs
          ..data                 link  -> ..generation_000001
          ..generation_000001    dir  2755 0:2000
            password             file  0644 0:2000  "open-sesame"
          password               link  -> ..data/password
        /me                      dir  3777 0:2000  ro  tmpfs
          ..data                 link  -> ..generation_000001
          ..generation_000001    dir  2755 0:2000
            name                 file  0644 0:2000  "web"
          name                   link  -> ..data/name
        /xvda                    block  <device:raw>
    "#]])
        .await?;

    web.stop().await?;
    cx.sees(expect![[r#"
        rmdir  <web>/cache
        csi    Unpublish data web
        umount <publish:data/web>
        csi    Unstage data
        umount <web>/dir
        rmdir  <web>/dir
        umount <web>/disk
        rmdir  <web>/disk
        umount <global:disk>
        umount <sub-path:fast/web/main/5>
        umount <web>/fast
        rmdir  <web>/fast
        umount <web>/keys
        rmdir  <web>/keys
        umount <web>/me
        rmdir  <web>/me
        umount <web>/mix
        rmdir  <web>/mix
        unlock <map:raw/web>
        unlink <web>/raw
        umount <map:raw/web>
        rmdir  <map:raw>
        rmdir  <web>/settings
    "#]])
        .await
}

/// The number of effects between two kills, unless the run is thorough: then the node is killed after each. The seed
/// chooses the first effect.
const STRIDE: u64 = 48;

/// The node is killed directly after one of its effects and started again: the pod still gets every volume, its
/// container keeps them, and the teardown leaves nothing.
///
/// Kubernetes, Pod Lifecycle: the node's agent can be restarted at any time.
#[case(needs = [Filesystem, Root, Owners, Loop, Persistent])]
async fn node_killed_after_an_effect(cx: &mut Cx) -> Result {
    let sources = Sources::make(cx).await?;
    let stride = if cx.is_thorough() { 1 } else { STRIDE };
    let first = 1 + cx.seed() % stride;
    let mut effects = first;
    while is_killed_after(cx, &sources, effects).await? {
        effects += stride;
    }
    // Only a thorough run knows how many effects there are: those of the last pod, which was not killed.
    if cx.is_thorough() {
        cx.tries("effects of the node", (effects - first) as usize, effects as usize - 1);
    }
    Ok(())
}

/// Sets up a pod and tears it down while the node is killed after a number of effects. Returns whether the node was
/// killed: a pod has only so many effects.
async fn is_killed_after(cx: &Cx, sources: &Sources, effects: u64) -> Result<bool> {
    cx.node().dies_after(effects).await;
    let web = sources.pod(cx, &format!("web-{effects}")).add().await?;
    let mut killed = cx.node().revive().await?;
    // The node is idle also before it begins with the pod, so the kill may still come during each of these.
    repeat_after_kill(cx, &mut killed, async || web.runs().await).await?;
    let start = async || {
        web.runs().await?;
        web.container().await
    };
    let inside = repeat_after_kill(cx, &mut killed, start).await?;
    inside.writes("/data/greeting", "hello").await?;
    inside.reads("/settings/color", "blue").await?;
    web.remove().await?;
    killed |= cx.node().revive().await?;
    // The story depends on the moment of the kill, and is not compared. Leftovers of a pod are found at the end of the
    // case: each pod has another name.
    repeat_after_kill(cx, &mut killed, async || cx.forget().await).await?;
    Ok(killed)
}

/// Does a step, and once more if it failed because the node was killed.
async fn repeat_after_kill<T>(cx: &Cx, killed: &mut bool, step: impl AsyncFn() -> Result<T>) -> Result<T> {
    match step().await {
        Err(_) if cx.node().revive().await? => {
            *killed = true;
            step().await
        }
        done => done,
    }
}

/// The node is killed during each of the driver's node calls: the pod still gets every volume, and the teardown leaves
/// nothing.
///
/// CSI: the CO may call again after any failure of its own, and the calls are idempotent.
#[case(needs = [Filesystem, StageUnstage, Root, Owners, Loop, Persistent])]
async fn node_killed_during_each_call(cx: &mut Cx) -> Result {
    let sources = Sources::make(cx).await?;
    for (name, setup, teardown) in
        [("a", Method::Stage, Method::Unpublish), ("b", Method::Publish, Method::Unstage)]
    {
        let held = cx.hold(setup);
        let web = sources.pod(cx, name).add().await?;
        held.reached().await?;
        cx.node().kill().await?;
        held.release();
        cx.node().start().await?;
        web.runs().await?;
        web.container().await?.writes("/data/greeting", "hello").await?;

        let held = cx.hold(teardown);
        web.remove().await?;
        held.reached().await?;
        cx.node().kill().await?;
        held.release();
        cx.node().start().await?;
        cx.forget().await?;
    }
    Ok(())
}

/// The sources of the volumes.
struct Sources {
    data: Volume,
    dir: Volume,
    disk: Volume,
    raw: Volume,
    here: String,
}

impl Sources {
    async fn make(cx: &Cx) -> Result<Self> {
        let here = cx.machine()?;
        std::fs::create_dir_all(here.join("local"))?;
        cx.config_map("settings", &[("color", "blue")])?;
        cx.secret("keys", &[("password", "open-sesame")])?;
        Ok(Self {
            data: cx.volume("data").create().await?,
            dir: cx.local("dir", &here.join("local"))?,
            disk: cx.local("disk", &cx.disk()?)?,
            raw: cx.local_block("raw", &cx.disk()?)?,
            here: here.display().to_string(),
        })
    }

    fn pod(&self, cx: &Cx, name: &str) -> PodBuilder {
        let fast = || memory(1 << 20);
        let mix = projected(vec![
            Projection::ConfigMap(all_of("settings")),
            Projection::DownwardApi { items: fields(&[("name", "metadata.name")]) },
            token("token"),
        ]);
        let pod =
            cx.pod(name).volume(&self.data, "/data").volume(&self.dir, "/dir").volume(&self.disk, "/disk");
        let pod = pod.device(&self.raw, "/xvda").inline("cache", empty_dir(), "/cache");
        let pod = pod.inline("fast", fast(), "/fast").inline("fast", fast(), "/part").sub_path("a");
        let pod = pod.inline("here", host_path(&self.here, "Directory"), "/here").inline("mix", mix, "/mix");
        let pod = pod.inline("settings", config_map("settings"), "/settings");
        let pod = pod.inline("keys", secret("keys"), "/keys");
        pod.inline("me", downward(&[("name", "metadata.name")]), "/me").fs_group(2000)
    }
}
