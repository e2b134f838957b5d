//! Generic ephemeral volumes: claims that belong to one pod.

use crate::prelude::*;

/// A pod with a generic ephemeral volume gets the volume of the claim that is made for it, and the claim goes with the
/// pod.
///
/// Kubernetes, Ephemeral Volumes: naming of the PersistentVolumeClaims is deterministic.
#[case(needs = [])]
async fn claim_is_made_for_its_pod(cx: &mut Cx) -> Result {
    let directory = cx.machine()?.join("data");
    std::fs::create_dir_all(&directory)?;
    cx.local_of_pod("web", "scratch", &directory)?;

    let web = cx.pod("web").inline("scratch", ephemeral(), "/scratch").start().await?;
    let inside = web.container().await?;
    inside.writes("/scratch/greeting", "hello").await?;
    cx.sees(expect![[r#"
        mkdir  <web>/web-scratch
        bind   <web>/web-scratch   =  <machine>/data
    "#]])
        .await?;

    web.stop().await?;
    cx.sees(expect![[r#"
        umount <web>/web-scratch
        rmdir  <web>/web-scratch
    "#]])
        .await
}

/// A claim that has the name of the pod's claim but another owner is not used: the pod waits with an event, and nothing
/// is mounted.
///
/// Kubernetes, Ephemeral Volumes: an existing PVC is not overwritten or modified.
#[case(needs = [])]
async fn foreign_claim_is_not_used(cx: &mut Cx) -> Result {
    let directory = cx.machine()?.join("data");
    std::fs::create_dir_all(&directory)?;
    cx.local("web-scratch", &directory)?;

    let web = cx.pod("web").inline("scratch", ephemeral(), "/scratch").add().await?;
    web.has_event(expect![[r#"
        FailedMount: Unable to attach or mount volumes: unmounted volumes=[scratch], unattached volumes=[], failed to process volumes=[scratch]: PVC default/web-scratch was not created for pod default/web (pod is not owner)
    "#]]).await?;
    web.stop().await?;
    cx.sees(expect![""]).await
}
