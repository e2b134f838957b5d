//! Mounts inside a container: a process with a mount namespace of its own, joined by nsenter.

use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use async_trait::async_trait;
use host::exec::{self, ContainerRef, Containers, Output, PodContainers};
use host::{Bind, Host, HostError, MountOptions, MountSpec, Propagation, bind};

use super::ground::{Ground, on_both, on_the_kernel};

/// The pod `infra/mounter` with the container `tools`, which is dead if `process` is `None`.
#[derive(Debug)]
struct OnePod {
    process: Option<u32>,
}

#[async_trait]
impl Containers for OnePod {
    async fn pod(&self, namespace: &str, name: &str) -> Option<PodContainers> {
        let containers = vec!["sidecar".to_owned(), "tools".to_owned()];
        (namespace == "infra" && name == "mounter")
            .then(|| PodContainers { uid: "u-1".to_owned(), containers })
    }

    async fn run(&self, container: &ContainerRef, program: &str, arguments: &[String]) -> io::Result<Output> {
        assert_eq!(container.container_name, "tools");
        let Some(process) = self.process else { return Err(io::Error::other("container is not running")) };
        let mut command = Command::new("nsenter");
        let mounts = format!("--mount=/proc/{process}/ns/mnt");
        let output = command.args([&mounts, "--", program]).args(arguments).output()?;
        let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.push_str(&String::from_utf8_lossy(&output.stderr));
        Ok(Output { code: output.status.code(), text })
    }
}

/// A process in a copy of the test's mount namespace. Ends with the test.
struct Container(Child);

impl Container {
    /// `propagation` as for unshare(1): whether the container's mounts reach the test's namespace.
    fn start(propagation: &str) -> Self {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", propagation, "--", "sh", "-c", "echo up; exec sleep 1000"]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = [0; 3];
        io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
        Self(child)
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

const GOOD: &str = r#"{"podName":"mounter","podNamespace":"infra","podUID":"u-1","containerName":"tools"}"#;

async fn register(ground: &Ground, json: &str) {
    let dir = ground.dir(exec::REGISTRATIONS).await;
    ground.host.write_file(&dir.join("kubernetes.io~nfs.json"), json.as_bytes(), 0o600).await.unwrap();
}

async fn host_of(ground: &Ground, pod: OnePod) -> host::Result<Arc<dyn Host>> {
    let containers: Arc<dyn Containers> = Arc::new(pod);
    exec::host_for(&ground.host, &containers, &ground.root, "kubernetes.io/nfs").await
}

fn text_of(error: &HostError) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    text
}

#[test]
fn plugin_without_a_registration_uses_the_nodes_host() {
    on_both(async |ground| {
        let host = host_of(ground, OnePod { process: None }).await.unwrap();
        assert!(Arc::ptr_eq(&host, &ground.host));
    });
}

#[test]
fn invalid_registration_is_an_error_with_its_file_and_defect() {
    on_both(async |ground| {
        let file = ground.path("plugin-containers/kubernetes.io~nfs.json");
        let file = file.display();
        for (json, expected) in [
            ("{", format!("unable to parse {file}: EOF while parsing an object at line 1 column 1")),
            ("{}", format!("unable to parse {file}: \"containerName\" is not set")),
            (r#"{"containerName":"c"}"#, format!("unable to parse {file}: \"podUID\" is not set")),
            (
                r#"{"containerName":"c","podUID":"u"}"#,
                format!("unable to parse {file}: \"podNamespace\" is not set"),
            ),
            (
                r#"{"containerName":"c","podUID":"u","podNamespace":"n"}"#,
                format!("unable to parse {file}: \"podName\" is not set"),
            ),
            (
                &GOOD.replace("mounter", "other"),
                format!("unable to process {file}: pod infra/other not found"),
            ),
            (
                &GOOD.replace("u-1", "u-2"),
                format!("unable to process {file}: pod infra/mounter has unexpected UID"),
            ),
            (
                &GOOD.replace("tools", "init"),
                format!("unable to process {file}: pod infra/mounter has no container named \"init\""),
            ),
        ] {
            register(ground, json).await;
            let error = host_of(ground, OnePod { process: None }).await.unwrap_err();
            assert_eq!(text_of(&error), expected);
        }
    });
}

#[test]
fn unreadable_registration_is_an_error() {
    on_both(async |ground| {
        let file = ground.dir("plugin-containers/kubernetes.io~nfs.json").await;
        let error = host_of(ground, OnePod { process: None }).await.unwrap_err();
        assert!(
            text_of(&error).starts_with(&format!("cannot read {}: ", file.display())),
            "{}",
            text_of(&error)
        );
    });
}

#[test]
fn mounts_are_made_in_the_container_and_seen_on_the_node() {
    on_the_kernel(async |ground| {
        share(ground).await;
        let container = Container::start("unchanged");
        register(ground, GOOD).await;
        let host = host_of(ground, OnePod { process: Some(container.0.id()) }).await.unwrap();
        let (target, bound) = (ground.dir("target").await, ground.dir("bound").await);
        let spec = MountSpec::new("tmpfs", &target, "tmpfs").with_options(MountOptions::new(["size=64k"]));
        host.mount(&spec).await.unwrap();
        bind::mount(&*host, &target, &bound, &MountOptions::new(["bind", "ro"])).await.unwrap();
        let table = ground.host.mount_table().await.unwrap();
        assert_eq!(table.at(&target).unwrap().fs_type, "tmpfs");
        // Its flags are not compared: the remount with `ro` came after the bind, and does not propagate to the node.
        assert!(table.at(&bound).is_some());
        host.unmount(&bound).await.unwrap();
        host.unmount(&target).await.unwrap();
        host.unmount(&target).await.unwrap();
        let table = ground.host.mount_table().await.unwrap();
        assert!(table.at(&target).is_none() && table.at(&bound).is_none());
    });
}

#[test]
fn mount_that_does_not_reach_the_node_is_an_error() {
    on_the_kernel(async |ground| {
        share(ground).await;
        let container = Container::start("private");
        register(ground, GOOD).await;
        let host = host_of(ground, OnePod { process: Some(container.0.id()) }).await.unwrap();
        let (source, target) = (ground.dir("source").await, ground.dir("target").await);
        let error = host.mount(&MountSpec::new("tmpfs", &target, "tmpfs")).await.unwrap_err();
        let (path, unseen) = (target.display(), "and the node does not see it");
        assert_eq!(text_of(&error), format!("container infra/mounter/tools mounted `{path}`, {unseen}"));
        let error = host.bind(&Bind::new(&source, &target)).await.unwrap_err();
        assert_eq!(text_of(&error), format!("container infra/mounter/tools mounted `{path}`, {unseen}"));
    });
}

#[test]
fn error_of_a_failed_command_has_its_command_line_and_output() {
    on_the_kernel(async |ground| {
        let container = Container::start("private");
        register(ground, GOOD).await;
        let host = host_of(ground, OnePod { process: Some(container.0.id()) }).await.unwrap();
        let target = ground.dir("target").await;
        let mut spec = MountSpec::new("tmpfs", &target, "no-such-fs");
        spec.options.push_sensitive("password=secret");
        let error = text_of(&host.mount(&spec).await.unwrap_err());
        let place = target.display();
        let expected = format!(
            "mount failed: exit status 32\nMounting command: mount\n\
             Mounting arguments: -t no-such-fs -o <masked> tmpfs {place}\nOutput: "
        );
        assert!(error.starts_with(&expected), "{error}");
        assert!(error.contains(&format!("Output: mount: {place}: ")), "{error}");
    });
}

#[test]
fn dead_container_fails_mount_and_unmount_without_fallback() {
    on_both(async |ground| {
        register(ground, GOOD).await;
        let host = host_of(ground, OnePod { process: None }).await.unwrap();
        let target = ground.tmpfs("target").await;
        let mount = text_of(&host.mount(&MountSpec::new("tmpfs", &target, "tmpfs")).await.unwrap_err());
        let place = target.display();
        let container = "in container infra/mounter/tools: container is not running";
        assert_eq!(mount, format!("cannot run `mount -t tmpfs tmpfs {place}` {container}"));
        let unmount = text_of(&host.unmount(&target).await.unwrap_err());
        assert_eq!(unmount, format!("cannot run `umount {place}` {container}"));
        assert!(host.is_mount_point(&target).await.unwrap(), "look-ups run on the node");
    });
}

/// Makes the root a shared mount, so that mounts propagate between node and container in both directions.
async fn share(ground: &Ground) {
    ground.host.set_propagation(&ground.root, Propagation::Shared, true).await.unwrap();
    assert!(Path::new("/usr/bin/nsenter").exists(), "util-linux is there");
}
