//! The configuration of a container beside its volumes, and the propagation of mounts between it and the node.

use crate::prelude::*;

/// A container has the user, groups, environment and host name of its pod, a hosts file with its name, and a
/// termination message file that is mounted last. hostnameOverride replaces every other host name, and
/// readOnlyRootFilesystem holds.
///
/// Kubernetes, Security Context: fsGroup is one of the supplementary groups of all processes of the container.
/// Kubernetes, Pod Hostname: hostnameOverride takes the place of hostname and subdomain.
#[case(needs = [Owners])]
async fn identity_comes_from_its_pod(cx: &mut Cx) -> Result {
    let web = cx.pod("web").inline("cache", empty_dir(), "/cache").address("10.1.2.3");
    let web = web.last_words("/cache/words").env("GREETING", "hello").fs_group(2000).run_as(1000);
    cx.secret("keys", &[("word", "open-sesame")])?;
    let web = web.env_from("WORD", from_key(HolderKind::Secret, "keys", "word"));
    let web = web.start().await?;
    cx.forget().await?;

    let inside = web.container().await?;
    inside
        .is(expect![[r#"
        user   1000:0
        groups 2000
        host   web
        env    GREETING=hello
        env    WORD=open-sesame
    "#]])
        .await?;
    inside.writes("/cache/words", "adieu").await?;
    inside
        .sees(expect![[r#"
        /cache                   dir  2777 0:2000  rw
          words                  file  0666 0:0  "adieu"  rw
        /etc/hosts               file  0644 0:0  196 bytes  EACCES
        /cache/words             file  0666 0:0  "adieu"  rw
    "#]])
        .await?;
    web.stop().await?;

    let named = cx.pod("named").inline("cache", empty_dir(), "/cache").address("10.1.2.3");
    let named = named.called("db.example.org").run_as(1000).run_as_group(3000).read_only_root();
    let named = named.run_as_non_root().start().await?;
    let inside = named.container().await?;
    inside
        .is(expect![[r#"
        user   1000:3000
        groups
        host   db.example.org
    "#]])
        .await?;
    inside.writes("/cache/file", "mine").await?;
    inside.cannot_write("/file", "EROFS").await?;
    named.stop().await
}

/// A container gets the variables of the services in its namespace, and of the API server even without service links.
/// Its own variables override them and may refer to them, and so may a sub-path.
///
/// Kubernetes, Service, Environment variables: {SVCNAME}_SERVICE_HOST and {SVCNAME}_SERVICE_PORT for each service with
/// an address, and the variables of Docker's links. Kubernetes API, PodSpec: enableServiceLinks.
#[case(needs = [])]
async fn service_variables_are_set(cx: &mut Cx) -> Result {
    cx.service(("default", "kubernetes"), "", &[("https", 443)])?;
    cx.service(("default", "my-db"), "10.96.7.7", &[("sql", 5432)])?;
    cx.service(("default", "headless"), "None", &[("", 80)])?;
    cx.service(("other", "far"), "", &[("", 80)])?;
    let pod = |name| cx.pod(name).inline("cache", empty_dir(), "/cache");
    let web = pod("web").inline("cache", empty_dir(), "/part").sub_path_expr("$(MY_DB_SERVICE_PORT)");
    let web = web.env("MY_DB_SERVICE_PORT_SQL", "mine").env("URL", "sql://$(MY_DB_SERVICE_HOST)/x");
    let web = web.start().await?;
    let inside = web.container().await?;
    let shown = || {
        expect![[r#"
        user   0:0
        groups
        host   web
        env    KUBERNETES_PORT=tcp://10.96.0.1:443
        env    KUBERNETES_PORT_443_TCP=tcp://10.96.0.1:443
        env    KUBERNETES_PORT_443_TCP_ADDR=10.96.0.1
        env    KUBERNETES_PORT_443_TCP_PORT=443
        env    KUBERNETES_PORT_443_TCP_PROTO=tcp
        env    KUBERNETES_SERVICE_HOST=10.96.0.1
        env    KUBERNETES_SERVICE_PORT=443
        env    KUBERNETES_SERVICE_PORT_HTTPS=443
        env    MY_DB_PORT=tcp://10.96.7.7:5432
        env    MY_DB_PORT_5432_TCP=tcp://10.96.7.7:5432
        env    MY_DB_PORT_5432_TCP_ADDR=10.96.7.7
        env    MY_DB_PORT_5432_TCP_PORT=5432
        env    MY_DB_PORT_5432_TCP_PROTO=tcp
        env    MY_DB_SERVICE_HOST=10.96.7.7
        env    MY_DB_SERVICE_PORT=5432
        env    MY_DB_SERVICE_PORT_SQL=mine
        env    URL=sql://10.96.7.7/x
    "#]]
    };
    inside.is(shown()).await?;
    inside.writes("/part/greeting", "hello").await?;
    inside.reads("/cache/5432/greeting", "hello").await?;
    cx.across(&[Restart, Kill], async |_| {
        web.runs().await?;
        web.container().await?.is(shown()).await
    })
    .await?;

    let alone = pod("alone").without_services().start().await?;
    let inside = alone.container().await?;
    inside
        .is(expect![[r#"
        user   0:0
        groups
        host   alone
        env    KUBERNETES_PORT=tcp://10.96.0.1:443
        env    KUBERNETES_PORT_443_TCP=tcp://10.96.0.1:443
        env    KUBERNETES_PORT_443_TCP_ADDR=10.96.0.1
        env    KUBERNETES_PORT_443_TCP_PORT=443
        env    KUBERNETES_PORT_443_TCP_PROTO=tcp
        env    KUBERNETES_SERVICE_HOST=10.96.0.1
        env    KUBERNETES_SERVICE_PORT=443
        env    KUBERNETES_SERVICE_PORT_HTTPS=443
    "#]])
        .await
}

/// A mount made in a Bidirectional volume appears on the node and in pods with HostToContainer. A pod with None does
/// not see it, and a recursively read-only pod cannot write to it.
///
/// Kubernetes, Volumes, Mount propagation: Bidirectional, HostToContainer, None, and recursiveReadOnly.
#[case(needs = [Owners])]
async fn mounts_propagate_as_configured(cx: &mut Cx) -> Result {
    let shared = cx.machine()?.display().to_string();
    let pod = |name| cx.pod(name).inline("shared", host_path(&shared, ""), "/shared");

    let apart = pod("apart").start().await?.container().await?;
    let taking = pod("taking").propagation("HostToContainer").start().await?.container().await?;
    let giving = pod("giving").propagation("Bidirectional").privileged().start().await?.container().await?;
    giving.mounts("/shared/disk").await?;
    giving.writes("/shared/disk/greeting", "hello").await?;

    giving
        .sees(expect![[r#"
        /shared                  dir  0755 0:0  rw  tmpfs size=16384k  shared
          disk                   dir  1777 0:0  rw  tmpfs size=64k  shared
            greeting             file  0644 0:0  "hello"
    "#]])
        .await?;
    taking
        .sees(expect![[r#"
        /shared                  dir  0755 0:0  rw  tmpfs size=16384k  slave
          disk                   dir  1777 0:0  rw  tmpfs size=64k  slave
            greeting             file  0644 0:0  "hello"
    "#]])
        .await?;
    apart
        .sees(expect![[r#"
        /shared                  dir  0755 0:0  rw  tmpfs size=16384k
          disk                   dir  0755 0:0
    "#]])
        .await?;

    // A pod that starts later sees the mounts that are there, and may write to them unless it is recursively read-only.
    let top = pod("top").read_only().start().await?.container().await?;
    top.cannot_write("/shared/other", "EROFS").await?;
    top.writes("/shared/disk/more", "written").await?;
    let all = pod("all").recursively_read_only().start().await?.container().await?;
    all.cannot_write("/shared/disk/more", "EROFS").await?;

    giving.unmounts("/shared/disk").await?;
    taking
        .sees(expect![[r#"
        /shared                  dir  0755 0:0  rw  tmpfs size=16384k  slave
          disk                   dir  0755 0:0
    "#]])
        .await
}

/// An unprivileged container cannot mount anything, and sees neither the node's devices nor its kernel interfaces.
///
/// Kubernetes, Pod Security Standards: only privileged containers may do what the node itself may.
#[case(needs = [Owners])]
async fn unprivileged_container_cannot_mount(cx: &mut Cx) -> Result {
    let web = cx.pod("web").inline("cache", empty_dir(), "/cache").start().await?;
    let inside = web.container().await?;
    inside.cannot_mount("/cache/disk", "EPERM").await?;
    inside.reads("/proc/interrupts", "").await?;
    inside.cannot_write("/proc/sys/kernel/core_pattern", "EROFS").await
}

/// A container with an impossible volume mount does not start, and the event says why without naming a path of the
/// node.
///
/// Kubernetes API, VolumeMount: name must match the name of a volume, mountPropagation is one of three words.
#[case(needs = [])]
async fn impossible_mount_is_refused(cx: &mut Cx) -> Result {
    let mount = |name| cx.pod(name).inline("cache", empty_dir(), "/cache");
    let sideways = mount("sideways").propagation("Sideways").start().await?;
    sideways
        .container_is_refused(expect![[r#"
        Invalid MountPropagation mode: "Sideways".
    "#]])
        .await?;
    let both = mount("both").propagation("Bidirectional").recursively_read_only().start().await?;
    both.container_is_refused(expect![[r#"
        Failed to resolve recursive read-only mode: volume is mounted with propagation.
    "#]])
        .await?;
    let root = mount("root").run_as_non_root().start().await?;
    root.container_is_refused(expect![[r#"
        Container has runAsNonRoot and image will run as root.
    "#]])
        .await
}
