//! Guests: the errors of a machine that cannot boot one, and runs whose guests die.
//!
//! The tests that boot guests need QEMU and the default kernel in the cache (`volproof vm fetch`), and skip
//! themselves without. Only guests' kernels die here, so this machine is not affected.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use expect_test::expect;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tests::{Ended, Process, Residue, Volproof, image_with_fake_csi};

/// An emulated guest takes minutes to boot on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);

/// Three cases of one volume, which run in this order.
const THREE_CASES: &str =
    "csi::publish::read_only_claim csi::publish::volume_is_published csi::recovery::pod_deleted_while";

/// A driver that is fake-csi, but for the guest's third piece of work: then the kernel panics.
const PANICS: &str = r#"
command = ["/bin/sh", "-c", """
if [ -e /dev/second ]; then echo c > /proc/sysrq-trigger; fi
if [ -e /dev/first ]; then echo > /dev/second; fi
echo > /dev/first
exec /init __fake-csi --endpoint={endpoint} --node={node} --state-dir={state}
"""]
"#;

/// fake-csi, with a command before each case that fails if an earlier case's files are still there.
const MAKES: &str = r#"
command = ["/bin/sh", "-c", """
exec /init __fake-csi --endpoint={endpoint} --node={node} --state-dir={state}
"""]

[per_case]
prepare = ["/bin/sh", "-c", "mkdir /tmp/made /run/made /made /var/lib/made"]
"#;

/// fake-csi beside an NFS export, which `prepare` mounts and writes to.
const EXPORTS: &str = r#"
command = ["/bin/sh", "-c", """
exec /init __fake-csi --endpoint={endpoint} --node={node} --state-dir={state}
"""]
nfs_export = "{state}/export"

[per_case]
prepare = ["/bin/sh", "-c", """
mkdir /tmp/mounted && mount -i -t nfs4 -o addr=127.0.0.1,vers=4.2 127.0.0.1:/ /tmp/mounted &&
echo kept > /tmp/mounted/file && umount /tmp/mounted && grep kept {state}/export/file
"""]
"#;

/// fake-csi beside a volume group, in which `prepare` makes a logical volume with a file system.
const GROUPS: &str = r#"
command = ["/bin/sh", "-c", """
exec /init __fake-csi --endpoint={endpoint} --node={node} --state-dir={state}
"""]

[[volume_groups]]
name = "csi-vg"
size = "256MiB"

[per_case]
prepare = ["/bin/sh", "-c", """
lvcreate --yes --name one --size 64m csi-vg && mkfs.ext4 -q /dev/csi-vg/one && mkdir /tmp/one &&
mount /dev/csi-vg/one /tmp/one && echo kept > /tmp/one/file && umount /tmp/one && lvchange --activate n csi-vg/one &&
lvchange --activate y csi-vg/one && mount /dev/csi-vg/one /tmp/one && grep kept /tmp/one/file && umount /tmp/one
"""]
cleanup = ["/bin/sh", "-c", "lvremove --yes csi-vg/one"]
"#;

/// fake-csi beside an iSCSI target: `prepare` logs in twice, writes to a disk the first time and reads the second, and
/// leaves a session behind.
const TARGETS: &str = r#"
command = ["/bin/sh", "-c", """
exec /init __fake-csi --endpoint={endpoint} --node={node} --state-dir={state}
"""]

[[iscsi_targets]]
iqn = "iqn.2026-01.dev.volproof:disks"
units = 2
size = "64MiB"

[per_case]
prepare = ["/bin/sh", "-c", """
set -e
name=iqn.2026-01.dev.volproof:disks
link=/dev/disk/by-path/ip-127.0.0.1:3260-iscsi-$name-lun
await() (tries=0; until "$@"; do tries=$((tries + 1)); test $tries -lt 100; sleep 0.1; done)
test ! -e /dev/disk
test -z "$(ls /sys/class/iscsi_session)"
iscsiadm --mode discovery --type sendtargets --portal 127.0.0.1:3260 | grep $name
iscsiadm --mode node --targetname $name --portal 127.0.0.1:3260 --login
await test -b $link-1
await test -b $link-2
mkfs.ext4 -q $link-2
mkdir /tmp/two
mount $link-2 /tmp/two
echo kept > /tmp/two/file
umount /tmp/two
iscsiadm --mode node --targetname $name --logout
await test ! -e $link-2
iscsiadm --mode node --targetname $name --portal 127.0.0.1:3260 --login
await test -b $link-2
mount $link-2 /tmp/two
grep kept /tmp/two/file
umount /tmp/two
"""]
"#;

/// fake-csi in a guest with modules, one of which `prepare` looks for.
const MODULES: &str = r#"
command = ["/bin/sh", "-c", """
exec /init __fake-csi --endpoint={endpoint} --node={node} --state-dir={state}
"""]

[guest]
modules = ["dm-crypt"]

[per_case]
prepare = ["/bin/grep", "dm_crypt", "/proc/modules"]
"#;

/// A driver that is fake-csi, but keeps its volumes in memory.
const FORGETS: &str = r#"
command = ["/bin/sh", "-c", """
exec /init __fake-csi --endpoint={endpoint} --node={node} --state-dir={state} --backing=tmpfs
"""]
"#;

/// Whether guests can be booted here. If not, prints the reason.
fn has_guests() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if !std::env::split_paths(&path).any(|dir| dir.join("qemu-system-x86_64").is_file()) {
        println!("skipped: QEMU is not installed");
        return false;
    }
    let fetched = cache().join("debs").read_dir().is_ok_and(|mut debs| {
        debs.any(|deb| deb.is_ok_and(|deb| deb.file_name().to_string_lossy().starts_with("linux-image-6.1.")))
    });
    if !fetched {
        println!("skipped: no kernel for guests was fetched (`volproof vm fetch`)");
    }
    fetched
}

fn cache() -> PathBuf {
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache");
    std::env::var_os("XDG_CACHE_HOME").map_or_else(home, PathBuf::from).join("volproof")
}

/// A run that may use the guests of this machine's user.
fn guests() -> Volproof {
    let cache = cache();
    Volproof::new().env("XDG_CACHE_HOME", &cache.parent().unwrap_or(&cache).to_string_lossy())
}

/// Processes of a run that are emulators.
fn emulators(mark: &str) -> Vec<i32> {
    let is_one = |pid: &i32| {
        std::fs::read_link(format!("/proc/{pid}/exe"))
            .is_ok_and(|path| path.to_string_lossy().contains("qemu-system"))
    };
    Process::marked(mark).into_iter().map(|process| process.pid).filter(is_one).collect()
}

fn wait_for_an_emulator(mark: &str) -> i32 {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(pid) = emulators(mark).first() {
            return *pid;
        }
        assert!(Instant::now() < deadline, "no guest was started");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_kernel_that_was_not_fetched_is_asked_for() {
    let ended = Volproof::new().args("run --tier vm").run();
    expect![[r#"
        exit 4
        --- stderr
        error: cannot boot a guest: kernel 6.1 (6.1.0-56-cloud-amd64) is not here

          hint: `volproof vm fetch 6.1` fetches it, once
    "#]]
    .assert_eq(&ended.told());
}

#[test]
fn unknown_kernel_names_the_nearest() {
    let ended = guests().args("run --tier vm --kernel 6.13").run();
    assert_eq!(ended.code, Some(2), "{}", ended.told());
    assert!(ended.stderr.contains("did you mean"), "{}", ended.told());
}

#[test]
fn missing_emulator_is_an_error_with_a_hint() {
    let ended = Volproof::new()
        .file("kernel.deb", "no package")
        .env("PATH", "/nonexistent")
        .args("run --tier vm --kernel kernel.deb")
        .run();
    expect![[r#"
        exit 4
        --- stderr
        error: cannot boot a guest: `qemu-system-x86_64` is not installed

          hint: on Debian and Ubuntu: apt-get install --no-install-recommends qemu-system-x86
    "#]]
    .assert_eq(&ended.told());
}

#[test]
fn a_package_that_is_none_is_refused() {
    if !has_guests() {
        return;
    }
    let ended =
        Volproof::new().file("kernel.deb", "no package").args("run --tier vm --kernel kernel.deb").run();
    assert_eq!(ended.code, Some(4), "{}", ended.told());
    assert!(ended.stderr.contains("cannot read package `kernel.deb`"), "{}", ended.told());
    let left = ended.directory.path().join("cache/volproof/guests").read_dir().map_or(0, |dir| dir.count());
    assert_eq!(left, 0, "half a guest was left in the cache");
}

#[test]
fn guest_that_would_be_emulated_is_started_only_if_it_is_asked_for() {
    if !has_guests() {
        return;
    }
    // No machine runs these cases itself.
    let ended = guests().args("run power:: --jobs 1").run();
    if ended.stdout.contains("Guests KVM: ") {
        return println!("skipped: KVM runs guests here");
    }
    assert_eq!(ended.code, Some(3), "{}", ended.told());
    assert!(ended.stdout.contains("no guest for it: a guest would be emulated, slowly"), "{}", ended.told());
}

#[test]
fn a_kernel_that_panics_ends_its_case_and_not_the_run() {
    if !has_guests() {
        return;
    }
    let ended = guests()
        .file("driver.toml", PANICS)
        .args("run --tier vm --driver driver.toml --jobs 1 --report out")
        .args(THREE_CASES)
        .run();
    assert_eq!(ended.code, Some(1), "{}", ended.told());
    let cases = ended.results().cases();
    let (bad, good): (Vec<_>, Vec<_>) = cases.iter().partition(|case| case.status != "passed");
    assert_eq!((bad.len(), good.len()), (1, 2), "{}", ended.told());
    assert_eq!(bad[0].status, "error", "{}", ended.told());
    assert!(ended.stdout.contains("the guest's kernel failed: panic"), "{}", ended.told());
    let log = Path::new("out/cases").join(&bad[0].id).join("kernel.log");
    let log = std::fs::read_to_string(ended.directory.path().join(log)).expect("the kernel's last words");
    assert!(log.contains("sysrq"), "{log}");
}

#[test]
fn a_case_finds_no_file_of_an_earlier_case_in_its_guest() {
    if !has_guests() {
        return;
    }
    let ended = guests()
        .file("driver.toml", MAKES)
        .args("run --tier vm --driver driver.toml --jobs 1 --report out csi::publish csi::recovery::pod_deleted")
        .run();
    assert_eq!(ended.code, Some(0), "{}", ended.told());
    assert!(ended.results().cases().len() > 1, "{}", ended.told());
}

#[test]
fn export_of_the_manifest_is_served_in_each_case_of_a_guest() {
    if !has_guests() {
        return;
    }
    let run = guests().file("driver.toml", EXPORTS).args("run --tier vm --driver driver.toml --jobs 1");
    let ended = run.args("csi::lifecycle::file_system_is csi::block::teardown").run();
    assert_eq!(ended.code, Some(0), "{}", ended.told());
}

#[test]
fn modules_of_the_manifest_are_loaded_in_each_guest() {
    if !has_guests() {
        return;
    }
    let run = guests().file("driver.toml", MODULES).args("run --tier vm --driver driver.toml --jobs 1");
    let ended = run.args("csi::lifecycle::file_system_is").run();
    assert_eq!(ended.code, Some(0), "{}", ended.told());
    let unknown = MODULES.replace("dm-crypt", "no-such-module");
    let run = guests().file("driver.toml", &unknown).args("run --tier vm --driver driver.toml --jobs 1");
    let ended = run.args("csi::lifecycle::file_system_is").run();
    assert_eq!(ended.code, Some(4), "{}", ended.told());
    let words = "the kernel has no module `no_such_module`";
    assert!(ended.stderr.contains(words), "{}", ended.told());
}

#[test]
fn driver_in_a_guest_has_a_volume_group() {
    if !has_guests() {
        return;
    }
    if !["/usr/sbin/lvm", "/sbin/lvm"].iter().any(|path| Path::new(path).is_file()) {
        println!("skipped: LVM is not installed");
        return;
    }
    let run = guests().file("driver.toml", GROUPS).args("run --tier vm --driver driver.toml --jobs 1");
    let ended = run.args("csi::lifecycle::file_system_is csi::block::teardown").run();
    assert_eq!(ended.code, Some(0), "{}", ended.told());
}

#[test]
fn driver_in_a_guest_has_an_iscsi_target() {
    if !has_guests() {
        return;
    }
    if !["/usr/sbin/iscsiadm", "/sbin/iscsiadm"].iter().any(|path| Path::new(path).is_file()) {
        println!("skipped: open-iscsi is not installed");
        return;
    }
    // The second case finds no session and no link of the first.
    let run = guests().file("driver.toml", TARGETS).args("run --tier vm --driver driver.toml --jobs 1");
    let ended = run.args("csi::lifecycle::file_system_is csi::block::teardown").run();
    assert_eq!(ended.code, Some(0), "{}", ended.told());
    // A disk more than there is.
    let control = TARGETS.replace("await test -b $link-1", "await test -b $link-3");
    let run = guests().file("driver.toml", &control).args("run --tier vm --driver driver.toml --jobs 1");
    let ended = run.args("csi::lifecycle::file_system_is").run();
    assert_eq!(ended.code, Some(4), "{}", ended.told());
    assert!(ended.stderr.contains("per_case.prepare"), "{}", ended.told());
}

#[test]
fn iscsi_target_of_this_machine_is_refused() {
    let run = Volproof::new().file("driver.toml", TARGETS).args("run --driver driver.toml");
    let ended = run.args("csi::lifecycle::file_system_is").run();
    assert_eq!(ended.code, Some(4), "{}", ended.told());
    for words in
        ["cannot make the iSCSI target `iqn.2026-01.dev.volproof:disks` on this machine", "--tier vm"]
    {
        assert!(ended.stderr.contains(words), "{words}: {}", ended.told());
    }
}

#[test]
fn a_driver_in_its_image_has_its_root_in_a_guest() {
    if !has_guests() {
        return;
    }
    let volproof = guests();
    image_with_fake_csi(volproof.directory());
    // What prepares beside it sees its root, and is a program of the guest.
    let manifest = r#"
image = "image"
command = ["--endpoint={endpoint}", "--node={node}", "--state-dir={state}"]
[per_case]
prepare = ["/bin/sh", "-c", "test -e /init && test -f {root}/driver.sh"]
"#;
    let (name, mark) = Residue::mark();
    let before = Residue::see(&mark);
    let ended = volproof
        .file("driver.toml", manifest)
        .env(name, &mark)
        .args("run --tier vm --driver driver.toml --jobs 1 --report out --boot-timeout 5m csi::publish csi::lifecycle::file_system_is_set_up_and_torn_down")
        .run();
    assert_eq!(ended.code, Some(0), "{}", ended.told());
    assert!(ended.results().cases().len() > 2, "{}", ended.told());
    ended.leaves_nothing(&before, &mark, PATIENCE);
}

#[test]
fn guest_that_does_not_boot_in_time_says_what_would_help() {
    if !has_guests() {
        return;
    }
    let debs = cache().join("debs").read_dir().expect("it was fetched").flatten().map(|deb| deb.path());
    let kernel = debs.into_iter().find(|deb| deb.to_string_lossy().contains("linux-image-6.1."));
    // With a cache of its own, in which no snapshot is kept: a guest from that needs no boot.
    let volproof = Volproof::new().args("run --tier vm --boot-timeout 10ms csi::publish --kernel");
    let ended = volproof.arg(kernel.expect("it was fetched")).run();
    assert_eq!(ended.code, Some(4), "{}", ended.told());
    for words in ["cannot boot a guest", "did not come up within", "it runs by ", "hint: --boot-timeout"] {
        assert!(ended.stderr.contains(words), "{words}: {}", ended.told());
    }
}

#[test]
fn a_guest_that_is_killed_is_replaced() {
    if !has_guests() {
        return;
    }
    let (name, mark) = Residue::mark();
    let (run, directory) =
        guests().args("run --tier vm --jobs 1 --report out").args(THREE_CASES).env(name, &mark).start();
    // The first guest only looks around; what matters is that no guest's end is the run's.
    let results = directory.path().join("out/cases/csi::publish::read_only_claim_cannot_be_written");
    let deadline = Instant::now() + PATIENCE;
    while !results.exists() {
        assert!(Instant::now() < deadline, "no case has begun");
        std::thread::sleep(Duration::from_millis(5));
    }
    kill(Pid::from_raw(wait_for_an_emulator(&mark)), Signal::SIGKILL).expect("it is there");
    let ended = Ended::of(run.wait_with_output().expect("its output"), directory);
    let cases = ended.results().cases();
    let bad: Vec<_> = cases.iter().filter(|case| case.status != "passed").collect();
    assert!(cases.len() == 3 && bad.len() == 1, "{}", ended.told());
    assert!(ended.stdout.contains("the guest is gone"), "{}", ended.told());
}

#[test]
fn ctrl_c_leaves_no_guest() {
    if !has_guests() {
        return;
    }
    for wait_for_a_case in [false, true] {
        let (name, mark) = Residue::mark();
        let before = Residue::see(&mark);
        let (run, directory) =
            guests().args("run --tier vm --repeat 50 --report out").env(name, &mark).start();
        wait_for_an_emulator(&mark);
        let deadline = Instant::now() + PATIENCE;
        let cases = directory.path().join("out/cases");
        while wait_for_a_case
            && cases
                .read_dir()
                .map_or(0, |cases| cases.flatten().filter(|entry| entry.path().is_dir()).count())
                == 0
        {
            assert!(Instant::now() < deadline, "no case has begun");
            std::thread::sleep(Duration::from_millis(5));
        }
        let group = Pid::from_raw(run.id().try_into().expect("a process id"));
        nix::sys::signal::killpg(group, Signal::SIGINT).expect("the run is there");
        let ended = Ended::of(run.wait_with_output().expect("its output"), directory);
        assert_eq!(ended.code, Some(130), "{}", ended.told());
        assert_eq!(emulators(&mark), Vec::<i32>::new());
        ended.leaves_nothing(&before, &mark, PATIENCE);
    }
}

#[test]
fn a_driver_that_forgets_when_the_power_fails_is_noticed() {
    if !has_guests() {
        return;
    }
    let ended = guests()
        .file("driver.toml", FORGETS)
        .args("run --tier vm --driver driver.toml --jobs 1 --report out power::")
        .run();
    assert_eq!(ended.code, Some(1), "{}", ended.told());
    let results = ended.results();
    assert_eq!(results.bad().len(), results.cases().len(), "{}", ended.told());
    assert!(ended.stdout.contains("`/data/greeting` cannot be read"), "{}", ended.told());
}

#[test]
fn a_server_that_misbehaves_is_noticed() {
    if !has_guests() {
        return;
    }
    // The faults of the server, each with the case that has to find it.
    for (how, case) in [
        ("read-only", "nfs::lifecycle::export_is_mounted_and_unmounted[v4]"),
        ("loses-data", "nfs::server::hard_mount_waits_for_its_server[v3]"),
        ("keeps-export", "nfs::export::withdrawn_export_is_stale_and_unmounted[v3]"),
        ("stays-down", "nfs::server::mount_is_retried_until_the_server_is_up[v3]"),
        ("trusts-root", "nfs::squash::sub_path_of_a_squashed_export_is_refused[v4]"),
    ] {
        let run = |volproof: Volproof| {
            volproof
                .args("run --tier vm --jobs 1 --timeout 20s --report out --spoil")
                .arg(how)
                .arg(case)
                .run()
        };
        let ended = run(guests());
        let bad = ended.results().bad();
        assert!(ended.code == Some(1) && bad.len() == 1, "{how}: {}", ended.told());
    }
}
