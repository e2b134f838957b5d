//! Checks after all clients have stopped.

use std::collections::BTreeSet;
use std::path::PathBuf;

use csi_proto::v1;
use fake_csi::books::{Access, Books};

use crate::world::{Csi, World};

/// Every staging and target in the books is mounted exactly once, and there is no other mount.
pub(super) async fn assert_books_agree_with_the_kernel(world: &World) {
    let books = world.control().books().await.unwrap();
    let mut expected: Vec<PathBuf> = Vec::new();
    for volume in books.volumes.values() {
        assert!(volume.created, "{} was not completely created", volume.id);
        let staged = volume.staged.values().filter(|staging| staging.capability.access != Access::Block);
        expected.extend(staged.map(|staging| staging.path.clone()));
        expected.extend(volume.targets.keys().cloned());
        let finished = volume.staged.values().all(|staging| staging.finished)
            && volume.targets.values().all(|target| target.finished);
        assert!(finished, "{} has an unfinished staging or target", volume.id);
    }
    let mut mounted: Vec<PathBuf> = world.mounts(&world.root).into_iter().map(|(path, _)| path).collect();
    expected.sort();
    mounted.sort();
    assert_eq!(mounted, expected, "the mount table, and the books");
    assert_eq!(
        images_with_devices(world),
        images_in_use(world, &books),
        "images with devices, and staged images"
    );
}

fn images_with_devices(world: &World) -> BTreeSet<PathBuf> {
    world.loops().into_iter().map(|file| PathBuf::from(file.to_string_lossy().trim())).collect()
}

fn images_in_use(world: &World, books: &Books) -> BTreeSet<PathBuf> {
    let staged = books.volumes.values().filter(|volume| !volume.staged.is_empty());
    staged.map(|volume| world.state().join("volumes").join(format!("v{}", volume.number))).collect()
}

/// Unpublishes, unstages and deletes everything by valid calls.
pub(super) async fn take_down(world: &World, csi: &mut Csi) {
    let books = world.control().books().await.unwrap();
    for volume in books.volumes.values() {
        for path in volume.targets.keys() {
            csi.unpublish(&volume.id, path).await.unwrap();
        }
        for staging in volume.staged.values() {
            csi.unstage(&volume.id, &staging.path).await.unwrap();
        }
        let volume_id = volume.id.clone();
        let request = v1::ControllerUnpublishVolumeRequest { volume_id, ..Default::default() };
        csi.controller.controller_unpublish_volume(request).await.unwrap();
        csi.delete(&volume.id).await.unwrap();
    }
    for snapshot in books.snapshots.keys() {
        let request = v1::DeleteSnapshotRequest { snapshot_id: snapshot.clone(), ..Default::default() };
        csi.controller.delete_snapshot(request).await.unwrap();
    }
    assert_eq!(std::fs::read_dir(world.state().join("snapshots")).unwrap().count(), 0);
}
