//! Probes of the driver as a whole: error codes, concurrency, secrets, restarts.

use std::time::Duration;

use csi_proto::v1;
use tonic::Code;

use super::{Chapter, probe};
use crate::scene::{Scene, WRITER, code};
use crate::world::{World, create, mounted, stage};

pub(super) const PROBES: Chapter = &[
    probe!("wrong-code-for-missing-field", missing_field_is_invalid),
    probe!("ignores-operations-in-flight", operations_do_not_interleave),
    probe!("one-operation-at-a-time", other_volumes_are_not_aborted),
    probe!("deadlocks-in-parallel", all_calls_are_answered),
    probe!("aborted-call-keeps-lock", aborted_call_is_good_later),
    probe!("publish-leaks-descriptor", no_descriptor_is_left),
    probe!("secrets-in-log", secrets_are_not_logged),
    probe!("secrets-in-errors", secrets_are_not_in_errors),
    probe!("forgets-on-restart", restart_keeps_the_volumes),
    probe!("restart-unmounts", restart_keeps_the_mounts),
    probe!("dies-of-unicode", unicode_does_not_kill),
    probe!("stage-leaves-process", no_process_is_left),
    probe!("wrong-code-for-unknown-volume", unknown_volume_is_not_found),
];

async fn missing_field_is_invalid(mut world: World) -> bool {
    let mut csi = world.start(&[]).await;
    code(&csi.node.node_stage_volume(v1::NodeStageVolumeRequest::default()).await) == Code::InvalidArgument
}

/// Stages a volume several times at once. Formatting takes long enough for the calls to overlap.
async fn operations_do_not_interleave(world: World) -> bool {
    let mut scene = Scene::mount(world).await;
    // On a busy machine they may come one after another: then nothing is seen, and they are made again.
    for _ in 0..10 {
        let calls: Vec<_> = (0..8)
            .map(|_| {
                let mut csi = scene.csi.clone();
                let request = stage(&scene.id, &scene.staging, scene.capability.clone());
                tokio::spawn(async move { csi.node.node_stage_volume(request).await.map(drop) })
            })
            .collect();
        let mut codes = Vec::new();
        for call in calls {
            codes.push(code(&call.await.unwrap()));
        }
        let is_settled = scene.stage().await.is_ok() && scene.mounts_at(&scene.staging) == 1;
        let is_expected = codes.iter().all(|code| matches!(code, Code::Ok | Code::Aborted));
        if !is_settled || !is_expected || scene.unstage().await.is_err() {
            return false;
        }
    }
    true
}

/// Stages a volume twice at once, until one of the calls is aborted, and once more.
async fn aborted_call_is_good_later(world: World) -> bool {
    let mut scene = Scene::mount(world).await;
    for _ in 0..10 {
        let mut other = scene.csi.clone();
        let request = stage(&scene.id, &scene.staging, scene.capability.clone());
        let (first, second) = tokio::join!(scene.stage(), other.node.node_stage_volume(request));
        let is_aborted = code(&first) == Code::Aborted || code(&second) == Code::Aborted;
        if is_aborted {
            return scene.stage().await.is_ok();
        }
        scene.unstage().await.unwrap();
    }
    true
}

async fn no_descriptor_is_left(world: World) -> bool {
    let mut scene = Scene::mount(world).await.staged().await;
    let open = |scene: &Scene| {
        let links = std::fs::read_dir(format!("/proc/{}/fd", scene.world.pid())).unwrap().flatten();
        links.filter(|link| std::fs::read_link(link.path()).is_ok_and(|to| to.ends_with("null"))).count()
    };
    let before = open(&scene);
    scene.publish().await.unwrap();
    scene.unpublish().await.unwrap();
    open(&scene) == before
}

/// Stages four volumes at once.
async fn stage_four(world: &mut World) -> Vec<tokio::task::JoinHandle<Result<(), tonic::Status>>> {
    let mut csi = world.start(&[]).await;
    let mut ids = Vec::new();
    for number in 0..4 {
        ids.push(csi.create(&format!("data-{number}"), mounted("", WRITER)).await.volume_id);
    }
    let calls = ids.into_iter().map(|id| {
        let path = world.directory(&format!("staging-{id}"));
        let mut csi = csi.clone();
        tokio::spawn(async move { csi.stage(&id, &path, mounted("", WRITER)).await })
    });
    calls.collect()
}

async fn other_volumes_are_not_aborted(mut world: World) -> bool {
    let mut all_ok = true;
    for call in stage_four(&mut world).await {
        all_ok &= call.await.unwrap().is_ok();
    }
    all_ok
}

async fn all_calls_are_answered(mut world: World) -> bool {
    let calls = stage_four(&mut world).await;
    let all = async {
        for call in calls {
            drop(call.await.unwrap());
        }
    };
    tokio::time::timeout(Duration::from_secs(5), all).await.is_ok()
}

async fn secrets_are_not_logged(world: World) -> bool {
    let mut scene = Scene::mount(world).await;
    let mut request = stage(&scene.id, &scene.staging, scene.capability.clone());
    request.secrets.insert("password".into(), "hunter2".into());
    scene.csi.node.node_stage_volume(request).await.unwrap();
    !std::fs::read_to_string(scene.world.log()).unwrap().contains("hunter2")
}

async fn secrets_are_not_in_errors(world: World) -> bool {
    let mut scene = Scene::mount(world).await;
    let mut request = stage(&scene.id, &scene.staging, scene.capability.clone());
    request.secrets.insert("password".into(), "hunter2".into());
    let staged = scene.csi.node.node_stage_volume(request).await;
    !staged.is_err_and(|status| status.message().contains("hunter2"))
}

async fn restart_keeps_the_volumes(world: World) -> bool {
    let mut scene = Scene::mount(world).await;
    scene.csi = scene.world.restart().await;
    let books = scene.world.control().books().await.unwrap();
    books.volumes.contains_key(&scene.id) && scene.stage().await.is_ok()
}

async fn restart_keeps_the_mounts(world: World) -> bool {
    let mut scene = Scene::mount(world).await.published().await;
    scene.csi = scene.world.restart().await;
    scene.mounts_at(&scene.target) == 1
}

async fn unicode_does_not_kill(mut world: World) -> bool {
    let mut csi = world.start(&[]).await;
    drop(csi.controller.create_volume(create("größe-😀", mounted("", WRITER))).await);
    csi.identity.probe(v1::ProbeRequest {}).await.is_ok()
}

async fn no_process_is_left(world: World) -> bool {
    let scene = Scene::mount(world).await.staged().await;
    let pid = scene.world.pid();
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    // Children of its other threads are listed with those threads.
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let all: String = tasks
        .filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok())
        .chain([children])
        .collect();
    for child in all.split_whitespace().filter_map(|child| child.parse().ok()) {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(child), nix::sys::signal::Signal::SIGKILL).unwrap();
    }
    all.trim().is_empty()
}

async fn unknown_volume_is_not_found(world: World) -> bool {
    let mut scene = Scene::mount(world).await;
    code(&scene.csi.stage("vol-none", &scene.staging, scene.capability.clone()).await) == Code::NotFound
}
