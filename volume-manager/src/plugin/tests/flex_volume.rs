//! FlexVolume with shell scripts as drivers, which mount nothing but write down how they are called.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use api::storage::FlexVolume;
use api::{Meta, Object, Secret, Sensitive, VolumeSource};
use expect_test::expect;

use crate::operation::Operation;
use crate::plugin::testing::Bench;

const DRIVER: &str = "example.com/script";

/// A bench with a volume of a driver that runs `body` for each command but `init`.
#[expect(clippy::disallowed_methods, reason = "the driver is the administrator's, and not the manager's")]
fn bench(capabilities: &str, body: &str) -> Bench {
    let mut bench = Bench::new();
    let directory = bench.path("volumeplugins/example.com~script");
    fs::create_dir_all(&directory).unwrap();
    let init = format!(r#"{{"status": "Success", "capabilities": {{{capabilities}}}}}"#);
    let text = format!(
        "#!/bin/sh\necho \"$*\" >> {}\nif [ $1 = init ]; then echo '{init}'; exit; fi\n{body}\n",
        bench.path("calls").display()
    );
    fs::write(directory.join("script"), text).unwrap();
    fs::set_permissions(directory.join("script"), fs::Permissions::from_mode(0o755)).unwrap();
    let options = [("level".to_owned(), "5".to_owned())].into();
    let secret = Some("login".to_owned());
    let flex = FlexVolume { driver: DRIVER.into(), options, secret, ..FlexVolume::default() };
    bench.inline(VolumeSource::FlexVolume(Box::new(flex)));
    let data = [("user".to_owned(), Sensitive::new(b"admin".to_vec()))].into();
    bench.put(Object::Secret(Arc::new(Secret { meta: Meta::named("default", "login"), data })));
    bench
}

#[expect(clippy::disallowed_methods, reason = "the driver's file is behind no door of the bench")]
fn calls(bench: &Bench) -> String {
    let calls = fs::read_to_string(bench.path("calls")).unwrap_or_default();
    calls.replace(&bench.path("").display().to_string(), "$R/")
}

const SUCCEEDS: &str = r#"echo '{"status": "Success"}'"#;

#[tokio::test]
async fn driver_gets_directory_and_options() {
    let mut bench = bench(r#""attach": false"#, SUCCEEDS);
    let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    assert!(story.ends_with("mark pod mounted to be labelled\ndone\n"), "{story}");
    let story = bench.run(Operation::Unmount(Arc::new(bench.unmounting()))).await;
    assert!(story.ends_with("done\n"), "{story}");
    expect![[r#"
        init
        mount $R/pods/u1/volumes/example.com~script/data {"kubernetes.io/fsType":"","kubernetes.io/pod.name":"web","kubernetes.io/pod.namespace":"default","kubernetes.io/pod.uid":"u1","kubernetes.io/pvOrVolumeName":"data","kubernetes.io/readwrite":"rw","kubernetes.io/secret/user":"YWRtaW4=","kubernetes.io/serviceAccount.name":"","level":"5"}
        unmount $R/pods/u1/volumes/example.com~script/data
    "#]]
    .assert_eq(&calls(&bench));
    assert!(!bench.tree().await.contains("~script/data"), "the driver left the directory to its node");
}

#[tokio::test]
async fn refused_mount_leaves_nothing() {
    let refuses = r#"echo '{"status": "Failure", "message": "no room"}'; exit 1"#;
    let mut bench = bench(r#""attach": false"#, refuses);
    let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    assert!(story.contains("mark pod failed: Final"), "{story}");
    assert!(story.contains("mount command failed, status: Failure, reason: no room"), "{story}");
    assert!(!bench.tree().await.contains("~script/data"));
}

/// The directory that cannot be removed stands for one with a mount.
#[tokio::test]
async fn mount_that_failed_after_its_effect_is_uncertain() {
    let fails =
        r#"if [ $1 = mount ]; then touch $2/file; fi; echo '{"status": "Failure", "message": "late"}'"#;
    let mut bench = bench(r#""attach": false"#, fails);
    let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    assert!(story.contains("mark pod failed: Uncertain"), "{story}");
}

#[tokio::test]
async fn answer_that_is_no_json_is_an_error_with_its_text() {
    let mut bench = bench(r#""attach": false"#, "echo permission denied");
    let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    assert!(
        story.contains(r#"failed to unmarshal output for command: mount, output: "permission denied"#),
        "{story}"
    );
}

#[tokio::test]
async fn driver_that_attaches_is_refused_by_its_name() {
    for capabilities in ["", r#""attach": true"#] {
        let mut bench = bench(capabilities, SUCCEEDS);
        let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
        assert!(story.contains("FlexVolume driver example.com/script attaches volumes"), "{story}");
        assert_eq!(calls(&bench), "init\n");
    }
}

#[tokio::test]
async fn missing_driver_is_named() {
    let mut bench = Bench::new();
    let flex = FlexVolume { driver: DRIVER.into(), ..FlexVolume::default() };
    bench.inline(VolumeSource::FlexVolume(Box::new(flex)));
    let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    assert!(story.contains("cannot call FlexVolume driver example.com/script"), "{story}");
}

#[tokio::test]
async fn command_that_is_not_supported_is_left_to_the_node() {
    let not_supported = r#"if [ $1 = mount ]; then echo '{"status": "Success"}'; else echo '{"status": "Not supported"}'; fi"#;
    let mut bench = bench(r#""attach": false"#, not_supported);
    bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    let story = bench.run(Operation::Unmount(Arc::new(bench.unmounting()))).await;
    assert!(story.ends_with("done\n"), "{story}");
    assert!(!bench.tree().await.contains("~script/data"));
}
