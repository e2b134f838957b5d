//! What a sandbox is, and that leaving it leaves nothing.

use harness::facts::{Fact, Facts};
use libtest_mimic::{Failed, Trial};

use crate::{helper, rooted, run_helper};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        rooted("sandbox::of_root_has_the_layout", || has_the_layout("root")),
        Trial::test("sandbox::without_root_has_the_layout", || has_the_layout("rootless")),
        Trial::test("sandbox::passes_the_exit_status_on", passes_the_exit_status_on),
        Trial::test("sandbox::reaps_orphans_and_no_other_processes", || run_helper("orphans", &[]).map(drop)),
        Trial::test("sandbox::refuses_a_second_thread", refuses_a_second_thread),
        rooted("sandbox::census_names_what_is_left_and_who_holds_it", census_names_what_is_left),
        rooted("filesystem::each_format_is_made_used_and_undone", each_format),
        Trial::test("filesystem::a_held_mount_names_its_holder", a_held_mount),
    ]
}

fn has_the_layout(kind: &str) -> Result<(), Failed> {
    let existed = ["/var/lib/kubelet", "/var/lib/volproof", "/var/lib/anything"].map(std::path::Path::new);
    let before = existed.map(std::path::Path::exists);
    expect_test::expect![[r#"
        threads 1
        pid 2 of volproof-init
        uid 0
        /proc proc private
        /dev tmpfs private
        /dev/pts devpts private
        /tmp tmpfs private
        /run tmpfs private
        /dev/shm tmpfs private
        /var/lib/kubelet tmpfs shared
        /var/lib/volproof tmpfs private
        state and root are one file system: true
        a file of one in the other: cross-device link or rename
        300 MiB in the node's root: no storage space
    "#]]
    .assert_eq(&run_helper("describe", &[kind])?);
    assert_eq!(before, existed.map(std::path::Path::exists), "nothing is made on the machine");
    Ok(())
}

fn passes_the_exit_status_on() -> Result<(), Failed> {
    assert_eq!(helper("exit", &["37"]).status()?.code(), Some(37));
    assert_eq!(helper("exit", &["0"]).status()?.code(), Some(0));
    assert_eq!(helper("die", &[]).status()?.code(), Some(harness::sandbox::SIGNALLED + 9));
    Ok(())
}

fn refuses_a_second_thread() -> Result<(), Failed> {
    assert_eq!(run_helper("threads", &[])?, "cannot enter a sandbox with 2 threads running\n");
    Ok(())
}

fn census_names_what_is_left() -> Result<(), Failed> {
    expect_test::expect![[r#"
        bind   /var/lib/kubelet/pods/block  =  device 7:N
        mount  /var/lib/kubelet/pods/web  =  ext4 on /dev/loopN, held by sleep[P]
        loop   /var/lib/volproof/drv/#9 (deleted) is loopN, held by ext4 at /var/lib/kubelet/pods/web ← sleep[P]
        process sleep[P]
        file   /var/lib/kubelet/pods/block
        file   /var/lib/kubelet/pods/web
    "#]].assert_eq(&run_helper("leave", &[])?);
    Ok(())
}

fn each_format() -> Result<(), Failed> {
    let formats = [("ext4", Fact::Ext4), ("xfs", Fact::Xfs), ("btrfs", Fact::Btrfs)];
    let of_disk = formats.map(|(format, fact)| match Facts::get().why_not(fact) {
        Some(absence) => format!("{format}: skipped: {absence}\n"),
        None => format!("{format}: /var/lib/kubelet/view says z, read-only filesystem or storage medium\n"),
    });
    let printed = run_helper("filesystems", &[])?;
    eprint!("{printed}");
    assert_eq!(printed, of_disk.concat() + "tmpfs: no storage space\n");
    Ok(())
}

fn a_held_mount() -> Result<(), Failed> {
    expect_test::expect![[r#"
        cannot unmount `/var/lib/kubelet/disk`: held by exe[P]
        mounted: false
        noted: 0
    "#]]
    .assert_eq(&run_helper("held", &[])?);
    Ok(())
}
