//! Links in the node's tree that lead out of it: no change follows them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use host::linux::LinuxHost;
use host::{Bind, Host, Removal, Result, errno};

use super::ground::on_the_kernel;

const RECORD: &str = "vol_data.json";

/// A directory outside of the node's tree, with the content of a volume's directory.
fn make_canary(directory: &Path) -> PathBuf {
    fs::create_dir_all(directory.join("mount")).unwrap();
    fs::write(directory.join(RECORD), "canary").unwrap();
    directory.to_owned()
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = entries.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    names
}

/// Does to a volume's directory all that a node does, and returns how each went.
async fn all_changes(host: &dyn Host, volume: &Path) -> Vec<Result<()>> {
    let path = |name: &str| volume.join(name);
    vec![
        host.write_file(&path(RECORD), b"{}", 0o600).await,
        host.create_file(&path("created"), 0o600).await,
        host.symlink(volume, &path("linked")).await,
        host.make_dir(&path("made"), 0o750).await,
        host.make_dir_all(&path("deep/er"), 0o750).await,
        host.remove_dir(&path("mount")).await,
        host.remove_file(&path(RECORD)).await,
        host.remove_tree(&path("made"), Removal::Everything).await,
        host.remove_tree(&path("deep"), Removal::DirsOnly).await,
    ]
}

#[test]
fn link_in_place_of_a_directory_of_the_node_is_not_followed() {
    on_the_kernel(async |ground| {
        let node = ground.dir("node").await;
        // The way to the root may have links.
        let root = ground.path("root");
        symlink(&node, &root).unwrap();
        let host = LinuxHost::of_node(&root);
        let below = Path::new("pods/uid/volumes/kubernetes.io~csi/pv");
        for replaced in
            ["pods/uid/volumes/kubernetes.io~csi/pv", "pods/uid/volumes/kubernetes.io~csi", "pods"]
        {
            let outside = ground.dir(&format!("outside/{}", replaced.len())).await;
            let canary = make_canary(&outside.join(below.strip_prefix(replaced).unwrap()));
            let link = node.join(replaced);
            fs::create_dir_all(link.parent().unwrap()).unwrap();
            symlink(&outside, &link).unwrap();
            for change in all_changes(&host, &root.join(below)).await {
                assert_eq!(change.unwrap_err().errno(), Some(errno::ELOOP), "{replaced}");
            }
            assert_eq!(names(&canary), ["mount", RECORD], "{replaced}");
            assert_eq!(fs::read_to_string(canary.join(RECORD)).unwrap(), "canary");
            fs::remove_file(&link).unwrap();
            fs::remove_dir_all(node.join("pods")).ok();
        }
    });
}

/// The control: where the directory is one, all of it works, and without a root the link is followed.
#[test]
fn directory_of_the_node_is_changed() {
    on_the_kernel(async |ground| {
        let root = ground.dir("node").await;
        let volume = make_canary(&root.join("pods/uid/pv"));
        let host = LinuxHost::of_node(&root);
        for change in all_changes(&host, &volume).await {
            change.unwrap();
        }
        assert_eq!(names(&volume), ["created", "linked"]);
        make_canary(&volume);
        symlink(&volume, ground.path("elsewhere")).unwrap();
        host.remove_dir(&ground.path("elsewhere/mount")).await.unwrap();
        LinuxHost::new().remove_file(&ground.path("elsewhere").join(RECORD)).await.unwrap();
        assert_eq!(names(&volume), ["created", "linked"]);
    });
}

/// The host of a node has shorter ways to its own files, with the same results.
#[test]
fn looks_of_the_node_and_of_the_machine_are_equal() {
    on_the_kernel(async |ground| {
        // The root may be a mount, too.
        let root = ground.tmpfs("node").await;
        ground.tmpfs("node/pods/mounted").await;
        make_canary(&root.join("pods/own"));
        make_canary(&root.join("pods/mounted"));
        make_canary(&ground.path("elsewhere"));
        symlink(ground.path("elsewhere"), root.join("pods/link")).unwrap();
        symlink("nowhere", root.join("pods/broken")).unwrap();
        let bound = ground.dir("node/pods/bound").await;
        ground.host.bind(&Bind::new(root.join("pods/own"), &bound)).await.unwrap();
        let (node, machine) = (LinuxHost::of_node(&root), LinuxHost::new());
        for below in
            ["", "pods", "pods/own", "pods/mounted", "pods/link", "pods/broken", "pods/bound", "pods/missing"]
        {
            for name in ["", ".", RECORD, "mount", "missing/deeper"] {
                let path = root.join(below).join(name);
                let looks = async |host: &LinuxHost| {
                    let (resolved, listed) = (host.canonicalize(&path).await, host.read_dir(&path).await);
                    let (read, references) = (host.read_file(&path).await, host.references(&path).await);
                    let (likely, certain) =
                        (host.is_likely_mount_point(&path).await, host.is_mount_point(&path).await);
                    let (stat, lstat) = (host.metadata(&path).await, host.symlink_metadata(&path).await);
                    let (access, shown) = (host.access(&path).await, host.mount_of(&path).await);
                    let link = host.read_link(&path).await;
                    format!(
                        "{resolved:?}\n{listed:?}\n{read:?}\n{references:?}\n{likely:?} {certain:?}\n{stat:?}\n{lstat:?}\n\
                         {access:?}\n{shown:?}\n{link:?}"
                    )
                };
                assert_eq!(looks(&node).await, looks(&machine).await, "{}", path.display());
            }
        }
    });
}

#[test]
fn missing_directories_are_made_also_where_a_link_or_a_mount_ends_the_short_way() {
    on_the_kernel(async |ground| {
        let root = ground.dir("node").await;
        let host = LinuxHost::of_node(&root);
        ground.tmpfs("node/mounted").await;
        fs::write(root.join("file"), "").unwrap();
        symlink(ground.dir("elsewhere").await, root.join("link")).unwrap();
        for (below, error) in [
            ("one/two/three", None),
            ("one/two/three", None),
            ("one/two/four/five", None),
            ("mounted/one/two", None),
            ("link", None),
            ("link/one", Some(errno::ELOOP)),
            ("file", Some(errno::ENOTDIR)),
            ("file/one", Some(errno::ENOTDIR)),
        ] {
            let made = host.make_dir_all(&root.join(below), 0o750).await;
            assert_eq!(made.err().and_then(|error| error.errno()), error, "{below}");
            assert!(error.is_some() || root.join(below).is_dir(), "{below}");
        }
        assert_eq!(names(&ground.path("elsewhere")), [""; 0]);
    });
}

#[test]
fn mount_over_the_root_is_seen_at_once() {
    on_the_kernel(async |ground| {
        let root = ground.dir("node").await;
        let host = LinuxHost::of_node(&root);
        host.make_dir_all(&root.join("pods/below"), 0o750).await.unwrap();
        ground.tmpfs("node").await;
        host.make_dir_all(&root.join("pods/above"), 0o750).await.unwrap();
        assert_eq!(names(&root.join("pods")), ["above"]);
        // The root is held open.
        drop(host);
        ground.host.unmount(&root).await.unwrap();
        let host = LinuxHost::of_node(&root);
        host.make_dir_all(&root.join("pods/again"), 0o750).await.unwrap();
        assert_eq!(names(&root.join("pods")), ["again", "below"]);
    });
}

#[test]
fn looks_follow_a_mount_that_is_moved_and_one_that_is_stacked() {
    on_the_kernel(async |ground| {
        let root = ground.dir("node").await;
        let (node, machine) = (LinuxHost::of_node(&root), LinuxHost::new());
        let (first, second) = (ground.dir("node/first").await, ground.dir("node/second").await);
        let (corpse, tmpfs) = (ground.corpse("corpse").await, ground.tmpfs("node/first").await);
        let agree = async || {
            for path in [&first, &second] {
                let (ours, all) = (node.metadata(path).await, machine.metadata(path).await);
                assert_eq!(format!("{ours:?}"), format!("{all:?}"), "{}", path.display());
                let (ours, all) = (node.references(path).await, machine.references(path).await);
                assert_eq!(format!("{ours:?}"), format!("{all:?}"), "{}", path.display());
            }
        };
        agree().await;
        // Another mount is in its place, and the list that was read before has the first one there.
        rustix::mount::mount_move(&tmpfs, &second).unwrap();
        ground.host.bind(&Bind::new(&corpse, &first)).await.unwrap();
        agree().await;
        assert!(node.metadata(&first).await.unwrap_err().is_corrupted_mount());
        ground.host.bind(&Bind::new(&corpse, &second)).await.unwrap();
        agree().await;
    });
}
