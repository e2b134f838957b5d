//! Config maps, secrets, fields of the pod and tokens: volumes that are files made from objects.

use std::time::Duration;

use crate::prelude::*;

/// The longest time between two syncs of a pod.
const RESYNC: Duration = Duration::from_secs(90);

/// Four fifths of a token's lifetime, after which it is renewed.
const MOST_OF_AN_HOUR: Duration = Duration::from_secs(48 * 60);

/// A ConfigMap, a Secret and the downward API become read-only files with the modes asked for, behind links that are
/// switched atomically. Secrets and tokens stay in memory.
///
/// Kubernetes, Volumes: configMap, secret and downwardAPI.
#[case(needs = [])]
async fn objects_become_files(cx: &mut Cx) -> Result {
    cx.config_map("settings", &[("color", "blue"), ("size", "9")])?;
    cx.secret("keys", &[("password", "open-sesame")])?;
    let private = some_of("keys", &[("password", "deep/pass", Some(0o400))]);

    let web = cx.pod("web").inline("settings", config_map("settings"), "/settings");
    let web = web.inline("keys", VolumeSource::Secret(private), "/keys").label("tier", "front");
    let web = web.inline("me", downward(&[("name", "metadata.name"), ("labels", "metadata.labels")]), "/me");
    let web = web.start().await?;
    cx.sees(expect![[r#"
        mkdir  <web>/keys
        mount  <web>/keys          tmpfs
        mkdir  <web>/me
        mount  <web>/me            tmpfs
        mkdir  <web>/settings
    "#]])
        .await?;
    let inside = web.container().await?;
    inside
        .sees(expect![[r#"
        /settings                dir  0777 0:0  ro
          ..data                 link  -> ..generation_000001
          ..generation_000001    dir  0755 0:0
            color                file  0644 0:0  "blue"
            size                 file  0644 0:0  "9"
          color                  link  -> ..data/color
          size                   link  -> ..data/size
        /keys                    dir  1777 0:0  ro  tmpfs
          ..data                 link  -> ..generation_000001
          ..generation_000001    dir  0755 0:0
            deep                 dir  0755 0:0
              pass               file  0400 0:0  "open-sesame"
          deep                   link  -> ..data/deep
        /me                      dir  1777 0:0  ro  tmpfs
          ..data                 link  -> ..generation_000001
          ..generation_000001    dir  0755 0:0
            labels               file  0644 0:0  "tier=\"front\""
            name                 file  0644 0:0  "web"
          labels                 link  -> ..data/labels
          name                   link  -> ..data/name
    "#]])
        .await?;
    inside.cannot_write("/settings/color", "EROFS").await?;

    web.stop().await?;
    cx.sees(expect![[r#"
        umount <web>/keys
        rmdir  <web>/keys
        umount <web>/me
        rmdir  <web>/me
        rmdir  <web>/settings
    "#]])
        .await
}

/// An update of an object replaces all its files at once in a running container, and removes those of keys that are
/// gone. An unchanged object changes nothing, and a sub-path keeps its old file.
///
/// Kubernetes, ConfigMap: mounted ConfigMaps are updated automatically; a container using a ConfigMap as a
/// subPath volume mount will not receive updates.
#[case(needs = [])]
async fn update_replaces_all_files_at_once(cx: &mut Cx) -> Result {
    cx.config_map("settings", &[("color", "blue"), ("size", "9")])?;
    let settings = || config_map("settings");
    let web =
        cx.pod("web").inline("settings", settings(), "/settings").inline("settings", settings(), "/color");
    let web = web.sub_path("color").start().await?;
    let inside = web.container().await?;

    cx.config_map("settings", &[("color", "red"), ("shape", "round")])?;
    web.sync().await?;
    cx.forget().await?;
    inside
        .sees(expect![[r#"
        /settings                dir  0777 0:0  ro
          ..data                 link  -> ..generation_000002
          ..generation_000002    dir  0755 0:0
            color                file  0644 0:0  "red"
            shape                file  0644 0:0  "round"
          color                  link  -> ..data/color
          shape                  link  -> ..data/shape
        /color                   file  0644 0:0  "blue"  ro
    "#]])
        .await?;

    // The next start looks the sub-path up again.
    let inside = web.container().await?;
    inside.reads("/color", "red").await?;
    web.stop().await
}

/// Several objects projected into one directory: a later source overrides an earlier one, and only the pod's group can
/// read a token.
///
/// Kubernetes, Projected Volumes.
#[case(needs = [Owners])]
async fn projected_objects_share_one_directory(cx: &mut Cx) -> Result {
    cx.config_map("settings", &[("color", "blue"), ("name", "map")])?;
    cx.secret("keys", &[("password", "open-sesame")])?;
    let sources = || {
        projected(vec![
            Projection::ConfigMap(all_of("settings")),
            Projection::Secret(all_of("keys")),
            Projection::DownwardApi { items: fields(&[("name", "metadata.name")]) },
            token("token"),
        ])
    };
    let group = cx.pod("group").inline("all", sources(), "/all").fs_group(2000).run_as(1000).start().await?;
    group
        .container()
        .await?
        .sees(expect![[r#"
        /all                     dir  3777 0:2000  ro  tmpfs
          ..data                 link  -> ..generation_000001
          ..generation_000001    dir  2755 0:2000
            color                file  0644 0:2000  "blue"
            name                 file  0644 0:2000  "group"
            password             file  0644 0:2000  "open-sesame"
            token                file  0640 1000:2000  "token-group-1"
          color                  link  -> ..data/color
          name                   link  -> ..data/name
          password               link  -> ..data/password
          token                  link  -> ..data/token
    "#]])
        .await?;
    let user = cx.pod("user").inline("all", sources(), "/all").run_as(1000).start().await?;
    user.container()
        .await?
        .sees(expect![[r#"
        /all                     dir  1777 0:0  ro  tmpfs
          ..data                 link  -> ..generation_000001
          ..generation_000001    dir  0755 0:0
            color                file  0644 0:0  "blue"
            name                 file  0644 0:0  "user"
            password             file  0644 0:0  "open-sesame"
            token                file  0600 1000:0  "token-user-2"
          color                  link  -> ..data/color
          name                   link  -> ..data/name
          password               link  -> ..data/password
          token                  link  -> ..data/token
    "#]])
        .await?;
    group.stop().await?;
    user.stop().await
}

/// A pod is synced by itself within 90 seconds: a changed object arrives, and a token is the same for most of its life.
///
/// Kubernetes, ConfigMap: mounted ConfigMaps are updated automatically, at the kubelet's periodic sync.
/// Kubernetes, ServiceAccount token projection: the kubelet rotates a token when it is older than 80 percent of its life.
#[case(needs = [])]
async fn changes_and_tokens_arrive_by_themselves(cx: &mut Cx) -> Result {
    cx.config_map("settings", &[("color", "blue")])?;
    let sources = vec![token("token")];
    let access = VolumeSource::Projected { sources, default_mode: 0o644 };
    let web = cx.pod("web").inline("settings", config_map("settings"), "/settings");
    let web = web.inline("access", access, "/access").start().await?;
    let inside = web.container().await?;
    inside.reads("/access/token", "token-web-1").await?;

    cx.config_map("settings", &[("color", "red")])?;
    cx.time_passes(RESYNC).await?;
    cx.forget().await?;
    inside.reads("/settings/color", "red").await?;
    inside.reads("/access/token", "token-web-1").await?;

    cx.time_passes(MOST_OF_AN_HOUR).await?;
    cx.forget().await?;
    inside.reads("/access/token", "token-web-2").await?;
    web.stop().await
}

/// A pod waits with an event, and with nothing mounted, until its missing object exists. An optional object may be
/// missing.
///
/// Kubernetes, ConfigMap, Optional ConfigMaps.
#[case(needs = [])]
async fn missing_object_keeps_its_pod_waiting(cx: &mut Cx) -> Result {
    let mut optional = all_of("later");
    optional.optional = true;
    let free = cx.pod("free").inline("later", VolumeSource::ConfigMap(optional), "/later");
    free.start()
        .await?
        .container()
        .await?
        .sees(expect![[r#"
        /later                   dir  0777 0:0  ro
          ..data                 link  -> ..generation_000001
          ..generation_000001    dir  0755 0:0
    "#]])
        .await?;
    cx.forget().await?;

    let web = cx.pod("web").inline("later", config_map("later"), "/later").add().await?;
    web.has_event(expect![[r#"
        FailedMount: MountVolume.SetUp failed for volume "later" : configmaps "later" not found
    "#]])
        .await?;
    cx.config_map("later", &[("color", "blue")])?;
    web.runs().await?;
    web.container().await?.reads("/later/color", "blue").await?;
    cx.sees(expect![[r#"
        mkdir  <web>/later
    "#]])
        .await
}

/// An object whose item path leads out of the volume is refused with an event, and no file is written.
///
/// Kubernetes API, KeyToPath.path: may not be an absolute path, may not contain or start with `..`.
#[case(needs = [])]
async fn path_out_of_the_volume_is_refused(cx: &mut Cx) -> Result {
    cx.config_map("settings", &[("color", "blue")])?;
    for (pod, path, event) in [
        (
            "a",
            "../color",
            expect![[r#"
            FailedMount: MountVolume.SetUp failed for volume "settings" : invalid path: must not contain '..': ../color
        "#]],
        ),
        (
            "b",
            "/etc/color",
            expect![[r#"
            FailedMount: MountVolume.SetUp failed for volume "settings" : invalid path: must be relative path: /etc/color
        "#]],
        ),
        (
            "c",
            "a/../../color",
            expect![[r#"
            FailedMount: MountVolume.SetUp failed for volume "settings" : invalid path: must not contain '..': a/../../color
        "#]],
        ),
        (
            "d",
            "..color",
            expect![[r#"
            FailedMount: MountVolume.SetUp failed for volume "settings" : invalid path: must not start with '..': ..color
        "#]],
        ),
    ] {
        let content = some_of("settings", &[("color", path, None)]);
        let source = VolumeSource::ConfigMap(content);
        let web = cx.pod(pod).inline("settings", source, "/settings").add().await?;
        web.has_event(event).await?;
        web.stop().await?;
    }
    cx.sees(expect![[r#"
        mkdir  <a>/settings
        rmdir  <a>/settings
        mkdir  <b>/settings
        rmdir  <b>/settings
        mkdir  <c>/settings
        rmdir  <c>/settings
        mkdir  <d>/settings
        rmdir  <d>/settings
    "#]])
        .await
}

/// When an object's files do not fit into its volume, none of them appears and nothing stays mounted.
///
/// Kubernetes, Secrets: stored in memory, which the pod's limits bound.
#[case(needs = [])]
async fn no_file_appears_when_space_runs_out(cx: &mut Cx) -> Result {
    cx.secret("large", &[("a", &"x".repeat(3000)), ("b", &"y".repeat(9000))])?;
    let web = cx.pod("web").inline("large", secret("large"), "/large").resource("limits.memory", "8Ki");
    let web = web.add().await?;
    web.has_event(expect![[r#"
        FailedMount: MountVolume.SetUp failed for volume "large" : cannot write the files of the volume: No space left on device (os error 28)
    "#]]).await?;
    web.stop().await
}
