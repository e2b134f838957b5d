//! Paths below a directory whose content belongs to a pod.

use std::path::{Path, PathBuf};

use host::{FileKind, errno};

use super::ground::{Ground, on_both};

/// `volume` with a directory, a file, links that stay below it and links that lead out.
async fn volume(ground: &Ground) -> PathBuf {
    let volume = ground.tmpfs("volume").await;
    ground.dir("volume/dir/deep").await;
    ground.file("volume/dir/file", "inside").await;
    ground.file("secret", "outside").await;
    for (link, target) in [
        ("inside", Path::new("dir/deep")),
        ("up-and-in", Path::new("dir/../dir")),
        ("up", Path::new("../secret")),
        ("absolute", &ground.path("secret")),
        ("root", Path::new("/")),
        ("dangling", Path::new("nowhere")),
        ("loop", Path::new("loop")),
        ("file-link", Path::new("dir/file")),
    ] {
        ground.host.symlink(target, &volume.join(link)).await.unwrap();
    }
    volume
}

#[test]
fn path_that_stays_below_is_opened_and_path_that_leaves_is_refused() {
    on_both(async |ground| {
        let volume = volume(ground).await;
        for (sub, kind) in [
            ("", FileKind::Directory),
            ("dir", FileKind::Directory),
            ("./dir/./deep", FileKind::Directory),
            ("dir/file", FileKind::File),
            ("inside", FileKind::Directory),
            ("up-and-in/file", FileKind::File),
            ("file-link", FileKind::File),
        ] {
            let opened = ground.host.open_beneath(&volume, Path::new(sub)).await.unwrap();
            assert_eq!(opened.metadata.kind, kind, "{sub}");
        }
        for sub in ["up", "absolute", "root", "root/etc", "dir/../..", "../secret", "/secret", "loop", ".."] {
            let error = ground.host.open_beneath(&volume, Path::new(sub)).await.unwrap_err();
            assert!(error.is_escape(), "{sub}: {error:?}");
        }
        for (sub, number) in
            [("missing", errno::ENOENT), ("dangling", errno::ENOENT), ("dir/file/x", errno::ENOTDIR)]
        {
            let error = ground.host.open_beneath(&volume, Path::new(sub)).await.unwrap_err();
            assert_eq!(error.errno(), Some(number), "{sub}");
        }
    });
}

/// The kubelet follows such a link by its path.
#[test]
fn absolute_link_is_refused_even_if_it_leads_back() {
    on_both(async |ground| {
        let volume = volume(ground).await;
        for (link, target) in [("back", volume.join("dir")), ("back-to-all", volume.clone())] {
            ground.host.symlink(&target, &volume.join(link)).await.unwrap();
            assert!(ground.host.metadata(&volume.join(link)).await.unwrap().is_dir());
            for sub in [link.to_owned(), format!("{link}/deep")] {
                let error = ground.host.open_beneath(&volume, Path::new(&sub)).await.unwrap_err();
                assert!(error.is_escape(), "{sub}: {error:?}");
                let new = Path::new(&sub).join("new");
                let error = ground.host.make_dirs_beneath(&volume, &new, 0o755).await.unwrap_err();
                assert!(error.is_escape(), "{sub}: {error:?}");
            }
        }
    });
}

#[test]
fn opened_directory_is_bound_after_its_path_was_swapped() {
    on_both(async |ground| {
        let volume = volume(ground).await;
        let opened = ground.host.open_beneath(&volume, Path::new("dir")).await.unwrap();
        ground.host.rename(&volume.join("dir"), &volume.join("moved")).await.unwrap();
        ground.host.symlink(&ground.root, &volume.join("dir")).await.unwrap();
        let target = ground.dir("target").await;
        ground.host.bind_opened(&opened, &target).await.unwrap();
        drop(opened);
        assert_eq!(ground.host.read_file(&target.join("file")).await.unwrap(), b"inside");
        let refused = ground.host.metadata(&target.join("secret")).await.unwrap_err();
        assert!(refused.is_not_found());
        ground.host.unmount(&target).await.unwrap();
    });
}

#[test]
fn opened_file_is_bound_over_a_file() {
    on_both(async |ground| {
        let volume = volume(ground).await;
        let target = ground.file("target", "").await;
        let opened = ground.host.open_beneath(&volume, Path::new("file-link")).await.unwrap();
        ground.host.bind_opened(&opened, &target).await.unwrap();
        assert_eq!(ground.host.read_file(&target).await.unwrap(), b"inside");
        let shown = ground.host.symlink_metadata(&target).await.unwrap();
        assert!(shown.is_same_file(&opened.metadata));
        assert!(!shown.is_same_file(&ground.host.metadata(&ground.path("secret")).await.unwrap()));
    });
}

#[test]
fn missing_directories_get_exactly_the_mode() {
    on_both(async |ground| {
        let volume = volume(ground).await;
        ground.host.make_dirs_beneath(&volume, Path::new("dir/a/b"), 0o2777).await.unwrap();
        ground.host.make_dirs_beneath(&volume, Path::new("dir/a/b"), 0o700).await.unwrap();
        ground.host.make_dirs_beneath(&volume, Path::new("inside/c"), 0o711).await.unwrap();
        for (path, mode) in [("dir/a", 0o2777), ("dir/a/b", 0o2777), ("dir/deep/c", 0o711), ("dir", 0o755)] {
            assert_eq!(ground.host.metadata(&volume.join(path)).await.unwrap().mode, mode, "{path}");
        }
    });
}

#[test]
fn directories_are_not_made_outside_the_base() {
    on_both(async |ground| {
        let volume = volume(ground).await;
        for sub in ["up/x", "root/x", "absolute", "../x", "/x", "dir/../../x", "loop/x"] {
            let error = ground.host.make_dirs_beneath(&volume, Path::new(sub), 0o755).await.unwrap_err();
            let in_the_way = matches!(sub, "up/x") && error.is_not_a_directory();
            assert!(error.is_escape() || in_the_way, "{sub}: {error:?}");
        }
        for sub in ["dir/file", "dir/file/x", "dangling", "dangling/x"] {
            let error = ground.host.make_dirs_beneath(&volume, Path::new(sub), 0o755).await.unwrap_err();
            assert!(error.is_not_a_directory(), "{sub}: {error:?}");
        }
        assert!(ground.host.metadata(&ground.path("x")).await.unwrap_err().is_not_found());
        assert!(ground.host.metadata(Path::new("/x")).await.unwrap_err().is_not_found());
    });
}
