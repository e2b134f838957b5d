//! Files of each kind, in volumes that are published again and in copies of volumes.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use crate::prelude::*;

const GONE: &str = "gone";

const OWNED: &str = "a file of another user";

/// A volume that is published again, and then staged again, has files of each kind that were left in it.
///
/// CSI, NodePublishVolume: "SP MUST ensure the CO can use the published volume as described".
#[case(needs = [Filesystem, Root, Owners, Persistent], judges = ["DRV-121", "DRV-160"])]
async fn files_of_each_kind_outlive_their_mount(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    let target = node.target("web");
    let Some(before) = published_with_each_kind(cx, &node, "DRV-160").await? else { return Ok(()) };
    node.undo_publish("web").await?;
    node.publish("web").await?.succeeds()?;
    stay(cx, "NodePublishVolume", "published again", &before, &kinds(&target))?;
    node.tear_down("web").await?;
    node.set_up("web").await?;
    stay(cx, "NodeStageVolume", "staged again", &before, &kinds(&target))?;
    node.tear_down("web").await
}

type Kinds = [(&'static str, String); 10];

/// Checks that the volume has each file as it was before.
fn stay(cx: &Cx, method: &str, after: &str, before: &Kinds, seen: &Kinds) -> Result {
    for ((name, before), (_, seen)) in before.iter().zip(seen) {
        // The owner and the mode have a promise of their own.
        let promise = if *name == OWNED && seen != GONE { "DRV-121" } else { "DRV-160" };
        let cause = format!("In a volume that was {after}, {name} was {before} and is {seen}.");
        cx.keeps(promise, method, before == seen, &cause)?;
    }
    Ok(())
}

/// A clone has files of each kind that its source has, with their owners, and shares none of them.
///
/// CSI, CreateVolume: the volume has the data of the original volume when it is presented by NodePublishVolume.
#[case(needs = [Clones, Creates, Filesystem, Root, Owners, Persistent], judges = ["DRV-014"], driver = Shared)]
async fn clone_has_each_kind_of_file(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    has_each_kind(cx, &data, false).await
}

/// A volume from a snapshot has files of each kind that the snapshot has, with their owners.
///
/// CSI, CreateVolume: the volume has the data of the snapshot when it is presented by NodePublishVolume.
#[case(needs = [Snapshots, Creates, Filesystem, Root, Owners, Persistent], judges = ["DRV-014"], driver = Shared)]
async fn restored_volume_has_each_kind_of_file(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    has_each_kind(cx, &data, true).await
}

async fn has_each_kind(cx: &Cx, data: &Volume, by_snapshot: bool) -> Result {
    let node = cx.node_calls(data).await?;
    let target = node.target("web");
    let Some(before) = published_with_each_kind(cx, &node, "DRV-014").await? else { return Ok(()) };
    let copy = take_copy(cx, &node, data, by_snapshot).await?;
    node.attach_again().await?;
    node.set_up("web").await?;
    let appended = fs::File::options().append(true).open(target.join("plain"));
    appended.and_then(|mut file| file.write_all(b" and more"))?;
    node.tear_down("web").await?;
    node.detach().await?;

    let copied = cx.node_calls(&copy).await?;
    if let Some(refused) = copied.refusal("copy").await? {
        let cause =
            format!("{} of a copy with files of each kind answered {}.", refused.method(), refused.code());
        return cx.keeps("DRV-014", "CreateVolume", false, &cause);
    }
    let after = kinds(&copied.target("copy"));
    for (name, before, after) in
        before.iter().zip(&after).map(|((name, before), (_, after))| (name, before, after))
    {
        let cause = format!("Of the copied volume, {name} was {before} and is {after} in the copy.");
        cx.keeps("DRV-014", "CreateVolume", before == after, &cause)?;
    }
    copied.tear_down("copy").await
}

/// A clone has the pipes of its source, and two names of one file are two names of one file in it.
///
/// CSI, CreateVolume: the volume has the data of the original volume when it is presented by NodePublishVolume.
#[case(needs = [Clones, Creates, Filesystem, Root, Persistent], judges = ["DRV-014", "DRV-161"], driver = Shared)]
async fn clone_has_pipes_and_second_names(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    has_pipes_and_second_names(cx, &data, false).await
}

/// A volume from a snapshot has the pipes of the volume, and two names of one file are two names of one file in it.
///
/// CSI, CreateVolume: the volume has the data of the snapshot when it is presented by NodePublishVolume.
#[case(needs = [Snapshots, Creates, Filesystem, Root, Persistent], judges = ["DRV-014", "DRV-161"], driver = Shared)]
async fn restored_volume_has_pipes_and_second_names(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    has_pipes_and_second_names(cx, &data, true).await
}

async fn has_pipes_and_second_names(cx: &Cx, data: &Volume, by_snapshot: bool) -> Result {
    let node = cx.node_calls(data).await?;
    let target = node.target("web");
    node.set_up("web").await?;
    let made = mkfifo(&target.join("pipe"), Mode::S_IRUSR | Mode::S_IWUSR)
        .map_err(std::io::Error::from)
        .and_then(|()| fs::write(target.join("one"), "of two names"))
        .and_then(|()| fs::hard_link(target.join("one"), target.join("two")));
    if let Err(error) = made {
        cx.not_tried("DRV-014", &format!("the volume takes no pipe or no second name: {error}"));
        return node.tear_down("web").await;
    }
    let copy = take_copy(cx, &node, data, by_snapshot).await?;
    let copied = cx.node_calls(&copy).await?;
    copied.set_up("copy").await?;
    let at = copied.target("copy");
    let is_pipe = fs::symlink_metadata(at.join("pipe")).is_ok_and(|found| found.file_type().is_fifo());
    let cause = "A pipe of the copied volume is not in the copy.";
    cx.keeps("DRV-014", "CreateVolume", is_pipe, cause)?;
    let number = |name: &str| fs::symlink_metadata(at.join(name)).map(|found| found.ino()).ok();
    let is_there = number("one").is_some() && number("two").is_some();
    let cause = "A name of a file with two names is not in the copy.";
    cx.keeps("DRV-014", "CreateVolume", is_there, cause)?;
    let cause = "Two names of one file of the copied volume are two files in the copy.";
    cx.keeps("DRV-161", "CreateVolume", number("one") == number("two"), cause)?;
    copied.tear_down("copy").await
}

/// Takes the volume from `web`, and makes a copy of it: by a snapshot, or else as a clone.
async fn take_copy(cx: &Cx, node: &NodeCalls, data: &Volume, by_snapshot: bool) -> Result<Volume> {
    node.tear_down("web").await?;
    node.detach().await?;
    let wanted = match by_snapshot {
        true => cx.volume("copy").restored_from(&cx.snapshot("one", data).await?),
        false => cx.volume("copy").copy_of(data),
    };
    wanted.create().await
}

/// Publishes the volume for `web` and makes the files. `None`, with the promise not tried and the volume unstaged, if the
/// volume does not take one of them.
async fn published_with_each_kind(cx: &Cx, node: &NodeCalls, promise: &str) -> Result<Option<Kinds>> {
    let target = node.target("web");
    node.set_up("web").await?;
    if let Err(error) = makes_each_kind(&target) {
        cx.not_tried(promise, &format!("the volume does not take each kind of file: {error}"));
        node.tear_down("web").await?;
        return Ok(None);
    }
    Ok(Some(kinds(&target)))
}

fn makes_each_kind(root: &Path) -> std::io::Result<()> {
    fs::write(root.join("plain"), "some text")?;
    fs::write(root.join(".hidden"), "out of sight")?;
    fs::write(root.join("größe 体积"), "of all the world")?;
    fs::create_dir(root.join("directory"))?;
    fs::hard_link(root.join("plain"), root.join("directory/second-name"))?;
    symlink("plain", root.join("link"))?;
    symlink("/nowhere/at/all", root.join("dangling"))?;
    fs::write(root.join("owned"), "by somebody")?;
    chown(root.join("owned"), Some(1234), Some(2345))?;
    fs::set_permissions(root.join("owned"), PermissionsExt::from_mode(0o4751))?;
    fs::File::create(root.join("empty"))?;
    fs::create_dir(root.join("empty-directory"))?;
    fs::File::create(root.join("sparse"))?.set_len(8 << 20)
}

/// The files of each kind as texts, for the comparison of two volumes.
fn kinds(root: &Path) -> Kinds {
    let text = |name: &str| fs::read_to_string(root.join(name)).unwrap_or_else(|_| GONE.to_owned());
    let link = |name: &str| {
        let leads = fs::read_link(root.join(name)).map(|to| format!("a link to `{}`", to.display()));
        leads.unwrap_or_else(|_| "no link".to_owned())
    };
    let seen = |name: &str, read: &dyn Fn(fs::Metadata) -> String| {
        fs::symlink_metadata(root.join(name)).map_or_else(|_| GONE.to_owned(), read)
    };
    let owner = |of: fs::Metadata| format!("of {}:{} with mode {:o}", of.uid(), of.gid(), of.mode() & 0o7777);
    [
        ("a plain file", text("plain")),
        ("a file whose name begins with a dot", text(".hidden")),
        ("a file with letters of all the world in its name", text("größe 体积")),
        ("a second name of a file", text("directory/second-name")),
        ("a symbolic link", link("link")),
        ("a symbolic link that leads nowhere", link("dangling")),
        (OWNED, seen("owned", &owner)),
        ("an empty file", seen("empty", &|of| format!("{} bytes long", of.len()))),
        ("an empty directory", seen("empty-directory", &|of| format!("a directory: {}", of.is_dir()))),
        ("a sparse file", seen("sparse", &|of| format!("{} bytes long", of.len()))),
    ]
}

/// A volume can be used as it was created, after it was asked whether it can be used in another way.
///
/// CSI, ValidateVolumeCapabilities: a question about a volume, which changes nothing.
#[case(needs = [Creates, Filesystem, Root], driver = Shared)]
async fn question_about_another_use_changes_nothing(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let mut asked = json!({ "volumeId": cx.handle(&data) });
    let created = cx.last_answer("CreateVolume")?;
    asked["volumeContext"] = created["volume"]["volumeContext"].clone();
    asked["volumeCapabilities"] = json!([{ "block": {}, "accessMode": { "mode": "SINGLE_NODE_WRITER" } }]);
    drop(cx.call("ValidateVolumeCapabilities", asked).await?);
    let node = cx.node_calls(&data).await?;
    let refusal = node.refusal("web").await?;
    let code = refusal.as_ref().map_or("OK", Answer::code);
    let cause = format!(
        "After ValidateVolumeCapabilities was asked whether a volume can be used as a device, its use with a file system was refused with {code}."
    );
    cx.keeps("DRV-029", "ValidateVolumeCapabilities", refusal.is_none(), &cause)?;
    node.tear_down("web").await
}
