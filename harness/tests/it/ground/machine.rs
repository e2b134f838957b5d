//! The machine as a sandbox shows it: writes to it are reported and discarded, and no two sandboxes meet there.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use harness::sandbox::{MachineOptions, SandboxOptions};
use libtest_mimic::{Failed, Trial};

use super::inside::enter;
use crate::{rooted, run_helper};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        rooted("machine::writes_are_told_and_thrown_away", || writes_are_reported("root")),
        Trial::test("machine::writes_without_root_are_told_and_thrown_away", || {
            writes_are_reported("rootless")
        }),
        rooted("machine::temporary_files_and_devices_are_its_own", || has_its_own("root")),
        Trial::test("machine::temporary_files_without_root_are_its_own", || has_its_own("rootless")),
        rooted("machine::two_sandboxes_do_not_meet_in_dev", do_not_meet),
        rooted("machine::devices_are_as_they_are_outside_if_dev_is_not_its_own", shares_dev),
    ]
}

/// A directory of the machine that is below none of the places a sandbox has of its own.
fn machine_dir() -> Result<tempfile::TempDir, Failed> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
    assert!(!["/tmp", "/run"].iter().any(|own| target.starts_with(own)), "{} is covered", target.display());
    Ok(tempfile::tempdir_in(target)?)
}

/// Everything in a directory with its mode, its time and its text.
fn look(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![dir.to_owned()];
    while let Some(path) = open.pop() {
        let metadata = fs::symlink_metadata(&path).unwrap();
        let text = if metadata.is_file() { fs::read_to_string(&path).unwrap() } else { String::new() };
        found.push(format!("{} {:o} {} {text}", path.display(), metadata.mode(), metadata.mtime_nsec()));
        if metadata.is_dir() {
            open.extend(fs::read_dir(&path).unwrap().flatten().map(|entry| entry.path()));
        }
    }
    found.sort();
    found
}

fn writes_are_reported(kind: &str) -> Result<(), Failed> {
    let dir = machine_dir()?;
    for sub in ["kept", "emptied", "removed", "open"] {
        fs::create_dir(dir.path().join(sub))?;
        fs::write(dir.path().join(sub).join("file"), "old")?;
    }
    for file in ["a file", "chmod", "same", "gone"] {
        fs::write(dir.path().join(file), "old")?;
    }
    symlink("chmod", dir.path().join("link"))?;
    let before = look(dir.path());
    let printed = run_helper("machine", &[kind, dir.path().to_str().expect("a plain name")])?;
    expect_test::expect![[r#"
        wrote to `<dir>/a file`
        changed `<dir>/chmod` from mode 644 to mode 600
        replaced `<dir>/emptied`
        removed `<dir>/gone`
        replaced `<dir>/link`
        made the link `<dir>/link to nothing` to `elsewhere`
        made the directory `<dir>/new`
        removed `<dir>/removed`
    "#]]
    .assert_eq(&printed);
    // Only the opened path was written.
    assert_eq!(fs::read_to_string(dir.path().join("open/file"))?, "written");
    fs::write(dir.path().join("open/file"), "old")?;
    let times = |lines: Vec<String>| lines.into_iter().filter(|line| !line.contains("/open/file")).collect();
    let (before, after): (Vec<_>, Vec<_>) = (times(before), times(look(dir.path())));
    assert_eq!(before, after);
    Ok(())
}

/// Does to a directory of the machine what a careless driver may do.
pub(crate) fn writes(user_namespace: bool, dir: &Path) {
    let machine = MachineOptions { open: vec![dir.join("open")], ..MachineOptions::default() };
    let sandbox = enter(SandboxOptions { user_namespace, machine, ..SandboxOptions::default() });
    assert_eq!(sandbox.bounds().open_because, None);
    assert_eq!(sandbox.written(), [], "the harness's own files are not counted");
    fs::write(dir.join("a file"), "new").unwrap();
    fs::set_permissions(dir.join("chmod"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::remove_dir_all(dir.join("emptied")).unwrap();
    fs::create_dir(dir.join("emptied")).unwrap();
    fs::remove_file(dir.join("gone")).unwrap();
    fs::remove_file(dir.join("link")).unwrap();
    symlink("elsewhere", dir.join("link")).unwrap();
    symlink("elsewhere", dir.join("link to nothing")).unwrap();
    fs::create_dir(dir.join("new")).unwrap();
    fs::write(dir.join("new/file"), "new").unwrap();
    fs::remove_dir_all(dir.join("removed")).unwrap();
    fs::write(dir.join("open/file"), "written").unwrap();
    // None of this changes anything in the end.
    drop(File::options().read(true).write(true).open(dir.join("same")).unwrap());
    fs::write(dir.join("for a moment"), "").unwrap();
    fs::remove_file(dir.join("for a moment")).unwrap();
    assert_eq!(fs::read_to_string(dir.join("kept/file")).unwrap(), "old");
    for written in sandbox.written() {
        println!("{}", written.to_string().replace(dir.to_str().unwrap(), "<dir>"));
    }
}

fn has_its_own(kind: &str) -> Result<(), Failed> {
    let dir = tempfile::tempdir_in("/tmp")?;
    for sub in ["shown", "hidden"] {
        fs::create_dir(dir.path().join(sub))?;
        fs::write(dir.path().join(sub).join("file"), "text")?;
    }
    let printed = run_helper("own", &[kind, dir.path().to_str().expect("a plain name")])?;
    expect_test::expect![[r#"
        shown: text
        hidden: entity not found
        made the file `<dir>/shown/new` (3 bytes)
        the ledgers: false
    "#]]
    .assert_eq(&printed);
    assert!(!dir.path().join("shown/new").exists() && !Path::new("/tmp/of the sandbox").exists());
    Ok(())
}

/// Looks at what is of the sandbox alone.
pub(crate) fn own(user_namespace: bool, dir: &Path) {
    let machine = MachineOptions { shown: vec![dir.join("shown")], ..MachineOptions::default() };
    let sandbox = enter(SandboxOptions { user_namespace, machine, ..SandboxOptions::default() });
    for sub in ["shown", "hidden"] {
        let text = fs::read_to_string(dir.join(sub).join("file")).unwrap_or_else(|e| e.kind().to_string());
        println!("{sub}: {text}");
    }
    for path in ["/tmp/of the sandbox", "/run/of the sandbox", "/dev/shm/of the sandbox"] {
        fs::write(path, "x").unwrap();
    }
    fs::write(dir.join("shown/new"), "new").unwrap();
    for written in sandbox.written() {
        println!("{}", written.to_string().replace(dir.to_str().unwrap(), "<dir>"));
    }
    println!("the ledgers: {}", harness::ledger::base().exists());
    // As programs use them.
    fs::write("/dev/null", "x").unwrap();
    let mut zeros = [1_u8; 4];
    std::io::Read::read_exact(&mut File::open("/dev/zero").unwrap(), &mut zeros).unwrap();
    assert_eq!(zeros, [0; 4]);
    assert!(Path::new("/dev/pts/ptmx").exists() && Path::new("/dev/fd/0").exists());
    assert!(Path::new("/sys/block").is_dir() && Path::new("/proc/self/exe").exists());
}

/// The device nodes of the machine's disks, without loop devices.
fn disks() -> Vec<PathBuf> {
    let names = fs::read_dir("/sys/block").unwrap().flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| !name.starts_with("loop")).map(|name| Path::new("/dev").join(name)).collect()
}

fn do_not_meet() -> Result<(), Failed> {
    assert_eq!(run_helper("meet", &["1"])?, "");
    assert_eq!(run_helper("meet", &["2"])?, "");
    for place in ["/dev/disk/by-id/volproof-test", "/dev/mapper/volproof-test"] {
        assert!(!Path::new(place).exists(), "`{place}` is on the machine");
    }
    Ok(())
}

/// Gives a disk a name in `/dev`, as drivers and udev do.
pub(crate) fn meet(number: &str) {
    // The control: the machine has what the sandbox must not have.
    let machines: Vec<PathBuf> = disks().into_iter().filter(|disk| disk.exists()).collect();
    enter(SandboxOptions::default());
    for directory in ["/dev/disk/by-id", "/dev/mapper"] {
        fs::create_dir_all(directory).unwrap();
        let name = Path::new(directory).join("volproof-test");
        assert!(!name.exists(), "another sandbox was here");
        symlink(format!("/dev/loop{number}"), name).unwrap();
    }
    for disk in machines {
        assert!(!disk.exists(), "`{}` is the machine's", disk.display());
    }
    // A loop device is had all the same: the next free one has a node.
    let found = Command::new("losetup").arg("--find").output().unwrap();
    let found = String::from_utf8(found.stdout).unwrap();
    assert!(Path::new(found.trim()).exists(), "no node for `{found}`");
}

fn shares_dev() -> Result<(), Failed> {
    assert_eq!(run_helper("dev", &[])?, "");
    assert!(!Path::new("/tmp/of the sandbox").exists() && !Path::new("/dev/shm/of the sandbox").exists());
    Ok(())
}

/// Looks at a `/dev` that is not of the sandbox alone.
pub(crate) fn dev() {
    // Loop and mapped devices come and go beside this test.
    let comes = |name: &str| name.starts_with("loop") || name.starts_with("dm-");
    let nodes = || {
        let nodes = fs::read_dir("/dev").unwrap().flatten();
        let nodes = nodes.filter_map(|entry| entry.file_name().into_string().ok());
        nodes.filter(|name| !comes(name)).collect::<std::collections::BTreeSet<_>>()
    };
    let machines = nodes();
    let machine = MachineOptions { own_dev: false, ..MachineOptions::default() };
    let sandbox = enter(SandboxOptions { machine, ..SandboxOptions::default() });
    assert_eq!(sandbox.bounds().open_because, None);
    assert_eq!(nodes(), machines);
    // Only what is no device is the sandbox's own.
    for path in ["/tmp/of the sandbox", "/dev/shm/of the sandbox"] {
        fs::write(path, "x").unwrap();
    }
}
