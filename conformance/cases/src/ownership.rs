//! fsGroup: a volume is given to its pod's group.

use crate::prelude::*;

/// Every file of a volume is given to the fsGroup and made writable for it, the root last. A link is given away and not
/// followed.
///
/// Kubernetes, Security Context: Kubernetes recursively changes ownership and permissions for the contents of
/// each volume to match the fsGroup.
#[case(needs = [Owners])]
async fn all_files_belong_to_the_group(cx: &mut Cx) -> Result {
    let volume = tree(cx)?;
    let data = cx.local("data", &volume)?;

    let web = cx.pod("web").volume(&data, "/data").fs_group(2000).run_as(1000).start().await?;
    let inside = web.container().await?;
    inside.writes("/data/sub/greeting", "hello").await?;
    inside
        .sees(expect![[r#"
        /data                    dir  2775 0:2000  rw
          file                   file  0664 0:2000  "x"
          link                   link  -> ../outside
          sub                    dir  2770 0:2000
            greeting             file  0644 1000:2000  "hello"
            script               file  0760 0:2000  "x"
    "#]])
        .await?;
    let outside = std::os::unix::fs::MetadataExt::gid(&std::fs::metadata(volume.with_file_name("outside"))?);
    cx.same("the group of what the link leads to", &outside.to_string(), "0")?;
    web.stop().await?;
    cx.sees(expect![[r#"
        mkdir  <web>/data
        bind   <web>/data          =  <machine>/volume
        umount <web>/data
        rmdir  <web>/data
    "#]])
        .await
}

/// With OnRootMismatch a volume whose root belongs to the group already is left alone. With Always, or with another
/// group, every file is walked.
///
/// Kubernetes, Security Context: fsGroupChangePolicy OnRootMismatch.
#[case(needs = [Owners])]
async fn matching_root_is_not_walked(cx: &mut Cx) -> Result {
    use std::os::unix::fs::{PermissionsExt, chown};
    let volume = tree(cx)?;
    chown(&volume, Some(0), Some(2000))?;
    std::fs::set_permissions(&volume, std::fs::Permissions::from_mode(0o2770))?;
    let data = cx.local("data", &volume)?;

    let lazy = cx.pod("lazy").volume(&data, "/data").fs_group(2000).on_root_mismatch().start().await?;
    lazy.container()
        .await?
        .sees(expect![[r#"
        /data                    dir  2770 0:2000  rw
          file                   file  0604 0:0  "x"
          link                   link  -> ../outside
          sub                    dir  0700 0:0
            script               file  0500 0:0  "x"
    "#]])
        .await?;
    lazy.stop().await?;
    let other = cx.pod("other").volume(&data, "/data").fs_group(3000).on_root_mismatch().start().await?;
    other
        .container()
        .await?
        .sees(expect![[r#"
        /data                    dir  2770 0:3000  rw
          file                   file  0664 0:3000  "x"
          link                   link  -> ../outside
          sub                    dir  2770 0:3000
            script               file  0760 0:3000  "x"
    "#]])
        .await?;
    other.stop().await
}

/// A read-only volume is not given to the fsGroup.
///
/// Kubernetes, Security Context: ownership is managed for volumes that support it and are not read-only.
#[case(needs = [Owners])]
async fn read_only_volume_keeps_its_owner(cx: &mut Cx) -> Result {
    let data = cx.local("data", &tree(cx)?)?;
    let web = cx.pod("web").volume(&data, "/data").read_only().fs_group(2000).start().await?;
    web.container()
        .await?
        .sees(expect![[r#"
        /data                    dir  0755 0:0  ro
          file                   file  0604 0:0  "x"
          link                   link  -> ../outside
          sub                    dir  0700 0:0
            script               file  0500 0:0  "x"
    "#]])
        .await?;
    web.stop().await
}

/// A node that is killed while it gives a volume to the group has not changed its root yet: the restarted node sees
/// that and walks it again.
///
/// Kubernetes, Security Context: fsGroupChangePolicy OnRootMismatch looks at the root of the volume only.
#[case(needs = [Owners, Fuse])]
async fn interrupted_walk_is_repeated(cx: &mut Cx) -> Result {
    let served = cx.fuse()?;
    for name in ["a", "b", "z"] {
        std::fs::create_dir(served.join(name))?;
        std::fs::write(served.join(name).join("file"), "x")?;
    }
    let data = cx.local("data", &served)?;
    cx.spoil_fuse(FileRule::on(FileCall::Change, FileFault::Hang).path("z/file"))?;
    let web = cx.pod("web").volume(&data, "/data").fs_group(2000).run_as(1000).on_root_mismatch();
    let web = web.add().await?;
    cx.fuse_hangs().await?;
    // A killed process that waits for an answer of the file system ends only after that answer.
    let node = cx.node();
    let (killed, mended) = tokio::join!(node.kill(), async { cx.mend_fuse() });
    killed.and(mended)?;
    let group = || Ok::<_, std::io::Error>(std::os::unix::fs::MetadataExt::gid(&std::fs::metadata(&served)?));
    cx.same("the group of the root", &group()?.to_string(), "0")?;

    cx.node().start().await?;
    web.runs().await?;
    web.container()
        .await?
        .sees(expect![[r#"
        /data                    dir  2775 0:2000  rw
          a                      dir  2775 0:2000
            file                 file  0664 0:2000  "x"
          b                      dir  2775 0:2000
            file                 file  0664 0:2000  "x"
          z                      dir  2775 0:2000
            file                 file  0664 0:2000  "x"
    "#]])
        .await?;
    web.stop().await?;
    cx.sees(expect![[r#"
        mkdir  <web>/data
        bind   <web>/data          =  <machine>/served
        umount <web>/data
        rmdir  <web>/data
    "#]])
        .await
}

/// A directory with a subdirectory, files of several modes, and a link that leads out of it.
fn tree(cx: &Cx) -> Result<std::path::PathBuf> {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let machine = cx.machine()?;
    let volume = machine.join("volume");
    let mode =
        |name: &str, mode| std::fs::set_permissions(volume.join(name), std::fs::Permissions::from_mode(mode));
    std::fs::create_dir_all(volume.join("sub"))?;
    std::fs::write(machine.join("outside"), "x")?;
    std::fs::write(volume.join("file"), "x")?;
    std::fs::write(volume.join("sub/script"), "x")?;
    symlink("../outside", volume.join("link"))?;
    for (name, bits) in [("", 0o755), ("sub", 0o700), ("file", 0o604), ("sub/script", 0o500)] {
        mode(name, bits)?;
    }
    Ok(volume)
}
