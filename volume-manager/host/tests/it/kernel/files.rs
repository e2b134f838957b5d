//! Reading and writing files, and paths that are no regular file.

use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use host::{FileKind, LARGEST, errno};
use nix::sys::stat::{Mode, SFlag, makedev, mknod};

use super::ground::{Ground, on_both};

/// `/dev/zero`, which never ends.
const ZERO: (u32, u32) = (1, 5);

fn make(ground: &Ground, kind: FileKind) -> PathBuf {
    let path = ground.path(&format!("{kind:?}"));
    if let Some(kernel) = ground.kernel() {
        let device = host::DeviceNumber::new(ZERO.0, ZERO.1);
        kernel.make_node(&path, kind, device, 0o600).unwrap();
        return path;
    }
    let node = |kind| mknod(&path, kind, Mode::S_IRWXU, makedev(ZERO.0.into(), ZERO.1.into())).unwrap();
    match kind {
        FileKind::Socket => drop(UnixListener::bind(&path).unwrap()),
        FileKind::Fifo => node(SFlag::S_IFIFO),
        _ => node(SFlag::S_IFCHR),
    }
    path
}

/// Error numbers of reading a path, reading its end, and writing to it.
async fn refusals(ground: &Ground, path: &Path) -> [Option<i32>; 3] {
    let host = &ground.host;
    [
        host.read_file(path).await.err().and_then(|error| error.errno()),
        host.read_end(path, 10).await.err().and_then(|error| error.errno()),
        host.write_file(path, b"x", 0o600).await.err().and_then(|error| error.errno()),
    ]
}

/// The host does not wait for the other end of a pipe, or for the end of an endless device.
#[test]
fn other_kinds_than_files_are_refused_without_blocking() {
    on_both(async |ground| {
        let link = async |target: &Path, name: &str| {
            let link = ground.path(name);
            ground.host.symlink(target, &link).await.unwrap();
            link
        };
        for kind in [FileKind::Fifo, FileKind::Socket, FileKind::CharDevice] {
            let path = make(ground, kind);
            assert_eq!(refusals(ground, &path).await, [Some(errno::ENXIO); 3], "{kind:?}");
            let link = link(&path, &format!("to-{kind:?}")).await;
            let expected = [Some(errno::ENXIO), Some(errno::ENXIO), Some(errno::ELOOP)];
            assert_eq!(refusals(ground, &link).await, expected, "a link to {kind:?}");
        }
        let (dir, file) = (ground.dir("dir").await, ground.file("file", "kept").await);
        for (path, expected) in [
            (link(Path::new("loop"), "loop").await, [Some(errno::ELOOP); 3]),
            (dir, [Some(errno::EISDIR); 3]),
            (file.join("below"), [Some(errno::ENOTDIR); 3]),
            (link(&file, "to-file").await, [None, None, Some(errno::ELOOP)]),
            (
                link(Path::new("x"), "dangling").await,
                [Some(errno::ENOENT), Some(errno::ENOENT), Some(errno::ELOOP)],
            ),
            (ground.path("missing"), [Some(errno::ENOENT), Some(errno::ENOENT), None]),
        ] {
            assert_eq!(refusals(ground, &path).await, expected, "{}", path.display());
        }
        assert_eq!(ground.host.read_file(&file).await.unwrap(), b"kept");
    });
}

#[test]
fn long_file_is_read_at_its_end_and_truncated_by_a_write() {
    on_both(async |ground| {
        let path = ground.path("long");
        let mut long = vec![0; usize::try_from(LARGEST).unwrap()];
        long.extend(b"the end");
        ground.host.write_file(&path, &long[7..], 0o600).await.unwrap();
        assert_eq!(ground.host.read_file(&path).await.unwrap().len() as u64, LARGEST);
        ground.host.write_file(&path, &long, 0o600).await.unwrap();
        assert_eq!(ground.host.read_file(&path).await.unwrap_err().errno(), Some(errno::EFBIG));
        assert_eq!(ground.host.read_end(&path, 7).await.unwrap(), b"the end");
        assert_eq!(ground.host.read_end(&path, 0).await.unwrap(), b"");
        ground.host.write_file(&path, b"short", 0o600).await.unwrap();
        assert_eq!(ground.host.read_end(&path, u64::MAX).await.unwrap(), b"short");
    });
}
