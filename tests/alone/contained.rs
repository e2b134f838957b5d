//! Changes of the machine by a driver outside of its own directory are reported, and do not stay.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use serial_test::serial;
use tests::{Ended, Finding, Residue, Volproof, built, has_root};

const PATIENCE: std::time::Duration = std::time::Duration::from_secs(30);

const CASE: &str = "csi::publish::read_only_claim_cannot_be_written";

/// fake-csi, started by a shell that does something first.
fn manifest(first: &str, more: &str) -> String {
    let driver = built().display();
    let serve = "__fake-csi --endpoint={endpoint} --node={node} --state-dir={state}";
    format!("command = ['/bin/sh', '-c', '''{first}; exec {driver} {serve}''']\n{more}\n")
}

/// Runs one case against a driver that does this first, and expects nothing to be left.
fn ended(first: &str, more: &str) -> Ended {
    let (name, mark) = Residue::mark();
    let before = Residue::see(&mark);
    let volproof = Volproof::new().args("run").arg(CASE).args("--report out --driver driver.toml");
    let ended = volproof.file("driver.toml", &manifest(first, more)).env(name, &mark).run();
    ended.leaves_nothing(&before, &mark, PATIENCE);
    ended
}

fn of_machine(ended: &Ended) -> Vec<String> {
    let findings = ended.results().findings().into_iter();
    findings.filter(|finding: &Finding| finding.contract == "machine").map(|finding| finding.cause).collect()
}

/// A path in a directory of the machine that no other test uses.
fn path(directory: &str, name: &str) -> PathBuf {
    Path::new(directory).join(format!("volproof-{}-{name}", std::process::id()))
}

#[test]
#[serial]
fn writes_beside_the_state_directory_are_findings_and_gone() {
    if !has_root() {
        return;
    }
    let (file, directory) = (path("/etc", "evil"), path("/", "data"));
    let first =
        format!("echo evil >{0}; mkdir -p {1}; echo evil >{1}/x", file.display(), directory.display());
    let evil = ended(&first, "");
    let expected = [
        format!("made the file `{}` (5 bytes)", file.display()),
        format!("made the directory `{}`", directory.display()),
    ];
    let mut found = of_machine(&evil);
    found.sort_by_key(|cause| cause.contains("directory"));
    assert_eq!(found, expected, "{}", evil.told());
    assert!(!file.exists() && !directory.exists());
    // No word of CSI forbids it.
    assert_eq!(evil.code, Some(0), "{}", evil.told());
    assert!(evil.told().contains("what the driver writes beside `{state}`"), "{}", evil.told());

    let honest = ended("true", "");
    assert_eq!((honest.code, of_machine(&honest)), (Some(0), vec![]), "{}", honest.told());
}

#[test]
#[serial]
fn path_that_the_manifest_opens_is_written_on_the_machine() {
    if !has_root() {
        return;
    }
    let directory = path("/var/lib", "opened");
    fs::create_dir(&directory).expect("a directory");
    let first = format!("echo good >{}/x", directory.display());
    let opened = ended(&first, &format!("host_paths = ['{}']", directory.display()));
    let text = fs::read_to_string(directory.join("x"));
    fs::remove_dir_all(&directory).expect("it can be removed");
    assert_eq!((opened.code, of_machine(&opened)), (Some(0), vec![]), "{}", opened.told());
    assert_eq!(text.ok().as_deref(), Some("good\n"));
    assert!(opened.told().contains("opened by the manifest"), "{}", opened.told());

    let missing = Volproof::new().args("run --driver driver.toml").arg(CASE);
    let missing = missing.file("driver.toml", &manifest("true", "host_paths = ['/no/such/path']")).run();
    assert_eq!(missing.code, Some(2), "{}", missing.told());
    assert!(missing.told().contains("there is no `/no/such/path`"), "{}", missing.told());
}

#[test]
#[serial]
fn ledgers_and_temporary_files_of_the_machine_are_out_of_sight() {
    if !has_root() {
        return;
    }
    // A path in the command would be visible to the driver.
    let theirs = path("/tmp", "theirs");
    fs::write(&theirs, "of another process").expect("a file");
    let mine = path("/tmp", "mine");
    let first = format!(
        "ls -d /run/volproof /tmp/volproof-*-theirs /dev/vda >{{state}}/seen 2>/dev/null; \
         test -s {{state}}/seen && cat {{state}}/seen >&2 && exit 7; echo >{}; echo >/run/x; true",
        mine.display()
    );
    let hidden = ended(&first, "");
    fs::remove_file(&theirs).expect("it can be removed");
    assert_eq!((hidden.code, of_machine(&hidden)), (Some(0), vec![]), "{}", hidden.told());
    assert!(!mine.exists() && !Path::new("/run/x").exists());
}

#[test]
#[serial]
fn removals_and_modes_are_findings_too() {
    if !has_root() {
        return;
    }
    let directory = path("/srv", "machine");
    fs::create_dir_all(&directory).expect("a directory");
    for file in ["gone", "mode", "kept"] {
        fs::write(directory.join(file), "text").expect("a file");
    }
    let at = directory.display();
    let changed = ended(&format!("rm {at}/gone; chmod 600 {at}/mode; cat {at}/kept >/dev/null"), "");
    let there = ["gone", "mode", "kept"].map(|file| directory.join(file).exists());
    fs::remove_dir_all(&directory).expect("it can be removed");
    let expected = [format!("removed `{at}/gone`"), format!("changed `{at}/mode` from mode 644 to mode 600")];
    let mut found = of_machine(&changed);
    found.sort_by_key(|cause| cause.contains("changed"));
    assert_eq!(found, expected, "{}", changed.told());
    assert_eq!(there, [true; 3]);
}

#[test]
#[serial]
fn loop_devices_over_a_drivers_own_temporary_files_are_detached() {
    if !has_root() {
        return;
    }
    let attach =
        "for f in /tmp/a /run/b /dev/shm/c; do truncate -s 1M $f; losetup -f $f; done; losetup >{state}/all";
    // None is left, which `ended` looks at; with as many attached as there should be.
    let attached = ended(
        &format!("{attach}; test $(grep -c '/tmp/a\\|/run/b\\|/dev/shm/c' {{state}}/all) -ge 3 || exit 9"),
        "",
    );
    assert!(matches!(attached.code, Some(0 | 1)), "{}", attached.told());
}

/// The top of the control groups of version 2.
fn top_of_groups() -> Option<&'static Path> {
    let top = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"].map(Path::new);
    let found = top.into_iter().find(|top| top.join("cgroup.procs").exists());
    if found.is_none() {
        println!("skipped: no control groups of version 2");
    }
    found
}

/// Whether the kernel names the process that makes a control group: Linux 6.6 and later.
fn kernel_names_makers_of_groups() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("it is readable");
    let numbers: Vec<u32> = release.split('.').take(2).filter_map(|part| part.parse().ok()).collect();
    let names = numbers.as_slice() >= [6, 6].as_slice();
    if !names {
        println!("skipped: Linux {} does not name the maker of a control group", release.trim());
    }
    names
}

/// A control group beside the driver's own outlives it. One below its own goes with it.
#[test]
#[serial]
fn control_group_that_stays_is_named_and_one_below_the_drivers_own_is_removed() {
    if !has_root() {
        return;
    }
    let Some(top) = top_of_groups() else { return };
    let beside = format!("{}/of-a-driver-{}", top.display(), std::process::id());
    let below = format!("mkdir {}$(sed -n s/^0:://p /proc/self/cgroup)/below", top.display());
    // Another one at each start, and one that is there from the first on.
    let made = ended(&format!("mkdir {beside}-$(date +%N) {beside}; {below}; true"), "");
    let groups = fs::read_dir(top).expect("it is listed").flatten().map(|entry| entry.path());
    let left: Vec<PathBuf> =
        groups.filter(|group| group.display().to_string().starts_with(&beside)).collect();
    left.iter().for_each(|group| fs::remove_dir(group).expect("it is empty"));
    assert_eq!(
        left.len(),
        3,
        "one of the first questions, one of the case, and one of both: {}",
        made.told()
    );
    let found = of_machine(&made);
    assert_eq!(found.len(), 1, "{}", made.told());
    assert!(found[0].starts_with(&format!("a control group stays: {beside}-")), "{}", made.told());
    assert!(made.told().contains(&format!("`{beside}`")), "the head names the first: {}", made.told());
    // No word of CSI forbids it.
    assert_eq!(made.code, Some(0), "{}", made.told());

    let nested = ended(&below, "");
    assert_eq!((nested.code, of_machine(&nested)), (Some(0), vec![]), "{}", nested.told());
}

/// Another program makes groups as long as the run lasts; the driver's is still found.
#[test]
#[serial]
fn control_groups_of_other_programs_are_not_the_drivers() {
    if !has_root() || !kernel_names_makers_of_groups() {
        return;
    }
    let Some(top) = top_of_groups() else { return };
    let name = |of: &str| format!("{}/{of}-{}", top.display(), std::process::id());
    let (theirs, drivers) = (name("of-another"), name("of-a-driver"));
    let is_over = AtomicBool::new(false);
    let (made, others) = std::thread::scope(|scope| {
        let maker = scope.spawn(|| {
            let mut groups = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                groups.push(PathBuf::from(format!("{theirs}-{}", groups.len())));
                fs::create_dir(groups.last().expect("just pushed")).expect("root can make one");
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            groups
        });
        let made = ended(&format!("mkdir {drivers}-$(date +%N); true"), "");
        is_over.store(true, Ordering::Relaxed);
        (made, maker.join().expect("it makes groups"))
    });
    let groups = fs::read_dir(top).expect("it is listed").flatten().map(|entry| entry.path());
    let left = groups.filter(|group| group.display().to_string().starts_with(&drivers));
    others.into_iter().chain(left).for_each(|group| fs::remove_dir(group).expect("it is empty"));
    assert!(!made.told().contains(&theirs), "{}", made.told());
    let found = of_machine(&made);
    assert_eq!(found.len(), 1, "{}", made.told());
    assert!(found[0].starts_with(&format!("a control group stays: {drivers}-")), "{}", made.told());
}

#[test]
fn help_says_what_a_driver_may_touch() {
    let help = Volproof::new().args("run --help").run();
    assert!(help.stdout.contains("contained against accidents, not malice"), "{}", help.told());
}
