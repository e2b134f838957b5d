//! Mounts of a plugin for which a container is registered, on a simulated node.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use api::{PersistentSource, VolumeSource};
use async_trait::async_trait;
use host::exec::{ContainerRef, Containers, Output, PodContainers, REGISTRATIONS};
use host::fake::{FakeHost, FakeKernel};

use crate::operation::Operation;
use crate::plugin::testing::Bench;

const DIR: &str = "pods/u1/volumes/kubernetes.io~nfs/pv";

/// The pod `infra/mounter`, whose container `tools` sees the node's mounts, with the commands that ran in it.
#[derive(Debug)]
struct OnePod {
    kernel: FakeKernel,
    ran: Arc<Mutex<Vec<String>>>,
}

#[async_trait]
impl Containers for OnePod {
    async fn pod(&self, namespace: &str, name: &str) -> Option<PodContainers> {
        let tools = PodContainers { uid: "u-1".to_owned(), containers: vec!["tools".to_owned()] };
        (namespace == "infra" && name == "mounter").then_some(tools)
    }

    async fn run(&self, _: &ContainerRef, program: &str, arguments: &[String]) -> io::Result<Output> {
        self.ran.lock().unwrap().push(format!("{program} {}", arguments.join(" ")));
        let target = Path::new(arguments.last().unwrap());
        match program {
            "mount" => self.kernel.mount("server:/data", target, "nfs", &[]),
            _ => self.kernel.unmount(target, false),
        }
        .unwrap();
        Ok(Output { code: Some(0), text: String::new() })
    }
}

/// A bench whose volume is an export, with the commands that run in the container.
fn export() -> (Bench, FakeHost, Arc<Mutex<Vec<String>>>) {
    let (mut bench, host) = Bench::simulated();
    bench.change_volume(|volume| {
        let (server, path) = ("server".to_owned(), "/data".to_owned());
        volume.source = PersistentSource::Nfs { server, path, read_only: false };
    });
    let ran = Arc::default();
    let pod = OnePod { kernel: host.kernel().clone(), ran: Arc::clone(&ran) };
    bench.context.containers = Some(Arc::new(pod));
    (bench, host, ran)
}

async fn register(bench: &Bench, json: &str) {
    let host = &bench.context.host;
    host.make_dir_all(&bench.path(REGISTRATIONS), 0o700).await.unwrap();
    let file = bench.path(REGISTRATIONS).join("kubernetes.io~nfs.json");
    host.write_file(&file, json.as_bytes(), 0o600).await.unwrap();
}

const REGISTRATION: &str =
    r#"{"podName":"mounter","podNamespace":"infra","podUID":"u-1","containerName":"tools"}"#;

#[tokio::test]
async fn registered_container_runs_the_mounts_of_its_plugin() {
    let (mut bench, host, ran) = export();
    let target = bench.path(DIR).display().to_string();
    for registered in [false, true] {
        if registered {
            register(&bench, REGISTRATION).await;
        }
        let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
        assert!(story.ends_with("done\n") && host.kernel().is_mount_point(&bench.path(DIR)), "{story}");
        let story = bench.run(Operation::Unmount(Arc::new(bench.unmounting()))).await;
        assert!(story.ends_with("done\n") && !host.kernel().is_mount_point(&bench.path(DIR)), "{story}");
        let expected = [format!("mount -t nfs server:/data {target}"), format!("umount {target}")];
        assert_eq!(*ran.lock().unwrap(), if registered { &expected[..] } else { &[] });
    }
    // Mounts of another plugin do not run in the container.
    bench.inline(VolumeSource::EmptyDir { medium: "Memory".into(), size_limit: None });
    let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    assert!(story.ends_with("done\n"), "{story}");
    assert_eq!(ran.lock().unwrap().len(), 2);
}

/// The kubelet with this feature mounted on the node in this case, which was the wrong place.
#[tokio::test]
async fn unusable_registration_fails_the_operation() {
    let (mut bench, host, ran) = export();
    register(&bench, &REGISTRATION.replace("tools", "other")).await;
    let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    let step = "MountVolume.NewMounter initialization failed for volume \"pv\" : ";
    assert!(story.contains(&format!("failed Transient: {step}unable to process ")), "{story}");
    assert!(story.contains(&format!("FailedMount: {step}the node's log says why")), "{story}");
    let story = bench.run(Operation::Unmount(Arc::new(bench.unmounting()))).await;
    assert!(story.contains("failed Transient: UnmountVolume.NewUnmounter failed"), "{story}");
    assert!(!story.contains("mark"), "{story}");
    assert!(!host.kernel().is_mount_point(&bench.path(DIR)) && ran.lock().unwrap().is_empty());
}
