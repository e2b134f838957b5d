//! A pod that swaps links while its sub-path is opened and bound.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::ground::on_the_kernel;

/// Number of opens, unless `HOST_TRIES` sets another.
const TRIES: u32 = 20_000;
/// Fewer than [`TRIES`]: binding is slower than opening.
const BINDS: u32 = 1_000;

#[test]
fn swapped_link_never_leads_out_of_the_volume() {
    on_the_kernel(async |ground| {
        let volume = ground.tmpfs("volume").await;
        ground.dir("volume/real/sub").await;
        ground.file("volume/real/sub/inside", "").await;
        ground.dir("outside/sub").await;
        ground.host.symlink(&ground.path("outside"), &volume.join("escape")).await.unwrap();
        ground.host.rename(&volume.join("real"), &volume.join("path")).await.unwrap();
        let target = ground.dir("target").await;
        let stop = Arc::new(AtomicBool::new(false));
        let swapper = std::thread::spawn({
            let (stop, volume) = (stop.clone(), volume.clone());
            move || swap(&volume, &stop)
        });
        let tries = std::env::var("HOST_TRIES").map_or(TRIES, |tries| tries.parse().unwrap());
        let (mut opened, mut refused) = (0u32, 0u32);
        // On a busy machine the swapping thread may not have run by then.
        let undecided =
            |opened: u32, refused: u32| opened.min(refused) == 0 && opened + refused < 100 * tries;
        while opened + refused < tries || undecided(opened, refused) {
            match ground.host.open_beneath(&volume, Path::new("path/sub")).await {
                Ok(found) => {
                    opened += 1;
                    assert!(found.path.starts_with(&volume), "{}", found.path.display());
                    if opened <= BINDS {
                        ground.host.bind_opened(&found, &target).await.unwrap();
                        assert!(target.join("inside").exists(), "the bind shows another directory");
                        drop(found);
                        // A process that another test forks holds this test's descriptors until its exec.
                        while let Err(busy) = ground.host.unmount(&target).await {
                            assert!(busy.is_busy(), "{busy:?}");
                        }
                    }
                }
                Err(error) => {
                    assert!(error.is_escape() || error.is_not_found(), "{error:?}");
                    refused += 1;
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
        let swaps = swapper.join().unwrap();
        assert!(opened > 0 && refused > 0 && swaps > 0, "{opened} opened, {refused} refused, {swaps} swaps");
    });
}

/// Swaps the directory with a link that leads out, until stopped.
fn swap(volume: &Path, stop: &AtomicBool) -> u64 {
    let dir = std::fs::File::open(volume).unwrap();
    let exchange = rustix::fs::RenameFlags::EXCHANGE;
    let mut swaps = 0;
    while !stop.load(Ordering::Relaxed) {
        rustix::fs::renameat_with(&dir, "path", &dir, "escape", exchange).unwrap();
        swaps += 1;
    }
    swaps
}
