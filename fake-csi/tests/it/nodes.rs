//! Several nodes that share volumes, in one process and in several.

use std::path::Path;
use std::process::{Child, Command};

use csi_proto::v1::volume_capability::access_mode::Mode;
use serial_test::file_serial;
use tonic::Code;

use crate::scene::{WRITER, code};
use crate::world::{Csi, World, block, in_namespace, mounted, publish};

/// Starts one more process of the driver on the state of a world.
fn start_beside(world: &World, socket: &Path, arguments: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_fake-csi"))
        .arg(format!("--endpoint=unix://{}", socket.display()))
        .arg("--state-dir")
        .arg(world.state())
        .args(arguments)
        .spawn()
        .unwrap()
}

#[test]
#[file_serial(root)]
fn two_nodes_share_a_shared_volume() {
    in_namespace(async |mut world| {
        let socket = world.root.join("second.sock");
        let endpoint = format!("--endpoint=unix://{}", socket.display());
        let mut one = world.start(&["--node=a", "--node=b@zone-1", &endpoint]).await;
        let mut other = Csi::connect(&socket).await;
        let many = || mounted("", Mode::MultiNodeMultiWriter);
        let id = one.create("share", many()).await.volume_id;
        for (csi, node) in [(&mut one, "a"), (&mut other, "b")] {
            let (staging, target) =
                (world.directory(&format!("{node}/staging")), world.path(&format!("{node}/pod/target")));
            csi.stage(&id, &staging, many()).await.unwrap();
            csi.node.node_publish_volume(publish(&id, &staging, &target, many())).await.unwrap();
        }
        std::fs::write(world.path("a/pod/target/x"), "seen").unwrap();
        assert_eq!(std::fs::read_to_string(world.path("b/pod/target/x")).unwrap(), "seen");
        for (csi, node) in [(&mut one, "a"), (&mut other, "b")] {
            csi.unpublish(&id, &world.path(&format!("{node}/pod/target"))).await.unwrap();
            csi.unstage(&id, &world.path(&format!("{node}/staging"))).await.unwrap();
        }
        other.delete(&id).await.unwrap();
        world.assert_clean().await;
    });
}

#[test]
#[file_serial(root)]
fn two_processes_share_the_books() {
    in_namespace(async |mut world| {
        let mut one = world.start(&["--node=a"]).await;
        let socket = world.root.join("second.sock");
        let mut second = start_beside(&world, &socket, &["--node=b"]);
        let mut other = Csi::connect(&socket).await;
        let id = one.create("from-a", mounted("", WRITER)).await.volume_id;
        // The second process stages a volume of the first, which then refuses to delete it.
        let staging = world.directory("staging");
        other.stage(&id, &staging, mounted("", WRITER)).await.unwrap();
        assert_eq!(code(&one.delete(&id).await), Code::FailedPrecondition);
        other.unstage(&id, &staging).await.unwrap();
        one.delete(&id).await.unwrap();
        assert_eq!(code(&other.stage(&id, &staging, mounted("", WRITER)).await), Code::NotFound);
        second.kill().unwrap();
        second.wait().unwrap();
    });
}

#[test]
#[file_serial(root)]
fn processes_of_one_node_start_at_once() {
    in_namespace(async |world| {
        for round in 0..20 {
            let sockets: Vec<_> =
                (0..4).map(|process| world.root.join(format!("{round}-{process}.sock"))).collect();
            let mut processes: Vec<_> =
                sockets.iter().map(|socket| start_beside(&world, socket, &[])).collect();
            let mut ended = None;
            for (process, socket) in processes.iter_mut().zip(&sockets) {
                while ended.is_none() && !socket.exists() {
                    ended = process.try_wait().unwrap();
                    tokio::time::sleep(std::time::Duration::from_millis(1)).await;
                }
            }
            let books = world.control().books().await;
            for mut process in processes {
                process.kill().unwrap();
                process.wait().unwrap();
            }
            assert_eq!(ended, None, "round {round}: a process has ended");
            books.unwrap();
        }
    });
}

#[test]
#[file_serial(root)]
fn block_volume_on_two_nodes_has_one_device_until_both_unstage() {
    in_namespace(async |mut world| {
        let socket = world.root.join("second.sock");
        let endpoint = format!("--endpoint=unix://{}", socket.display());
        let mut one = world.start(&["--node=a", "--node=b", &endpoint]).await;
        let mut other = Csi::connect(&socket).await;
        let many = || block(Mode::MultiNodeMultiWriter);
        let id = one.create("disk", many()).await.volume_id;
        for (csi, node) in [(&mut one, "a"), (&mut other, "b")] {
            let (staging, target) =
                (world.directory(&format!("{node}/staging")), world.path(&format!("{node}/pod/target")));
            csi.stage(&id, &staging, many()).await.unwrap();
            csi.node.node_publish_volume(publish(&id, &staging, &target, many())).await.unwrap();
        }
        std::fs::write(world.path("a/pod/target"), "seen").unwrap();
        assert!(std::fs::read(world.path("b/pod/target")).unwrap().starts_with(b"seen"));
        one.unpublish(&id, &world.path("a/pod/target")).await.unwrap();
        one.unstage(&id, &world.path("a/staging")).await.unwrap();
        assert!(std::fs::read(world.path("b/pod/target")).unwrap().starts_with(b"seen"));
        other.unpublish(&id, &world.path("b/pod/target")).await.unwrap();
        other.unstage(&id, &world.path("b/staging")).await.unwrap();
        other.delete(&id).await.unwrap();
        world.assert_clean().await;
    });
}
