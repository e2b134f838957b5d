//! A driver with a root directory of its own, as from its image: it starts there, mounts on the node, and its writes to its
//! root do not change the directory.

use std::path::Path;

use serial_test::serial;
use tests::{Residue, Volproof, built, has_root, root_with, settle};

const PATIENCE: std::time::Duration = std::time::Duration::from_secs(30);

fn manifest(root: &str, command: &str) -> String {
    format!("root = {root:?}\ncommand = ['/bin/sh', '-c', '{command}']\n")
}

#[test]
#[serial]
fn a_driver_in_its_own_root_serves_the_node() {
    if !has_root() {
        return;
    }
    let volproof = Volproof::new();
    let programs =
        [built(), Path::new("/bin/sh"), Path::new("/usr/bin/touch"), Path::new("/usr/sbin/mkfs.ext4")];
    let root = root_with(volproof.directory(), &programs);
    // The driver does not see the machine's file, and writes to its own.
    let command = format!(
        "test ! -e /home || exit 3; touch /written || exit 4; exec {} __fake-csi --endpoint={{endpoint}} --node={{node}} --state-dir={{state}}",
        built().display()
    );
    let (name, mark) = Residue::mark();
    let before = Residue::see(&mark);
    let ended = volproof
        .file("driver.toml", &manifest("root:fs", &command))
        .env(name, &mark)
        .args("run csi::lifecycle csi::recovery csi::block csi::publish --driver driver.toml --report out")
        .run();
    assert_eq!(ended.code, Some(0), "{}", ended.told());
    assert_eq!(settle(&before, &mark, PATIENCE), Vec::<String>::new());
    assert!(!root.join("written").exists() && !root.join("dev").exists(), "its root is as it was");
}

#[test]
#[serial]
fn program_missing_in_the_root_is_named() {
    if !has_root() {
        return;
    }
    let told = |text: &str| {
        let volproof = Volproof::new();
        root_with(volproof.directory(), &[Path::new("/bin/sh")]);
        let ended = volproof.file("driver.toml", text).args("run csi::lifecycle --driver driver.toml").run();
        assert_eq!(ended.code, Some(4), "{}", ended.told());
        ended.told()
    };
    let there = told(&manifest("nowhere", "exit 1"));
    assert!(there.contains("its root `") && there.contains("nowhere` is not a directory"), "{there}");
    let program = told("root = 'root:fs'\ncommand = ['/bin/no-driver']\n");
    assert!(program.contains("cannot start `/bin/no-driver` in `"), "{program}");
}
