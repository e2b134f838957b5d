//! `--about`: the cases about the node do not run against a foreign driver, which cannot influence them, unless the user
//! wants them.

use std::collections::BTreeSet;

use tests::{Ended, Volproof, built, has_root};

/// The cases that are left of all: some ask a driver for something, and some for nothing.
const FEW: [&str; 2] = ["csi::identity::", "empty_dir::"];

/// The flags that leave only those cases, and no filter: a filter says what is wanted.
fn few() -> String {
    let listed = Volproof::new().args("list").run();
    let modules = listed.stdout.lines().filter_map(|line| {
        let id = line.split_whitespace().find(|word| word.contains("::"))?;
        Some(format!("{}::", id.rsplit_once("::")?.0))
    });
    let others: BTreeSet<String> = modules.filter(|module| !FEW.contains(&module.as_str())).collect();
    assert!(others.len() > 10, "{}", listed.told());
    others.iter().map(|module| format!("--exclude {module} ")).collect()
}

/// Runs the selected cases. The exit code shows whether other cases ran.
fn run(foreign: bool, arguments: &str) -> Ended {
    let run = Volproof::new().args("run --report out --jobs 2").args(arguments);
    if foreign { run.arg("--driver-cmd").arg(driver()).run() } else { run.run() }
}

fn driver() -> String {
    format!("{} __fake-csi --endpoint={{endpoint}} --node={{node}} --state-dir={{state}}", built().display())
}

/// The first words of the ids of what ran, each once.
fn groups(ended: &Ended) -> Vec<String> {
    let cases = ended.results().cases();
    let mut groups: Vec<String> =
        cases.iter().filter_map(|case| Some(case.id.split_once("::")?.0.to_owned())).collect();
    groups.dedup();
    groups
}

#[test]
fn a_foreign_driver_is_asked_about_itself_unless_more_is_wanted() {
    if !has_root() {
        return;
    }
    let few = few();
    for (foreign, arguments, expected) in [
        (true, few.clone(), vec!["csi"]),
        (true, format!("{few} --about driver"), vec!["csi"]),
        (true, format!("{few} --about node"), vec!["empty_dir"]),
        (true, format!("{few} --about all"), vec!["csi", "empty_dir"]),
        (false, few.clone(), vec!["csi", "empty_dir"]),
        (false, format!("{few} --about driver"), vec!["csi"]),
        // A filter selects cases about the node too.
        (true, "empty_dir::".to_owned(), vec!["empty_dir"]),
        (true, "empty_dir:: name_of_128 --about driver".to_owned(), vec!["csi"]),
    ] {
        let ended = run(foreign, &arguments);
        assert_eq!(groups(&ended), expected, "foreign: {foreign}, {arguments}\n{}", ended.told());
        assert_eq!(ended.code, Some(0), "foreign: {foreign}, {arguments}\n{}", ended.told());
        let cases = ended.results().cases().len();
        let said = format!("{cases} about the driver (`--about all` runs all)");
        assert_eq!(ended.stdout.contains(&said), expected == ["csi"], "{}", ended.told());
    }
}

#[test]
fn nothing_that_is_wanted_is_about_the_node() {
    let ended = run(true, "name_of_128 --about node");
    assert_eq!(ended.code, Some(3), "{}", ended.told());
}

/// mkfs.xfs refuses disks below 300 MiB, which is no fault of a driver whose manifest says `size = "64MiB"`, or no size.
#[test]
fn a_volume_is_large_enough_for_its_file_system() {
    if !has_root() {
        return;
    }
    let both = asked_sizes("size = \"64MiB\"\nfs_types = [\"ext4\", \"xfs\"]");
    assert_eq!(both, ["67108864", "314572800"]);
    assert_eq!(asked_sizes("fs_types = [\"xfs\"]"), ["314572800"]);
}

/// The sizes that a case asks for, with these lines in the table `volume` of the manifest.
fn asked_sizes(lines: &str) -> Vec<String> {
    let words: Vec<String> = driver().split(' ').map(|word| format!("{word:?}")).collect();
    let manifest =
        format!("name = \"fake.csi.volproof.dev\"\ncommand = [{}]\n[volume]\n{lines}\n", words.join(", "));
    let case = "csi::staging::file_system_and_mount_flags_are_applied";
    let run = Volproof::new().file("driver.toml", &manifest);
    let (run, directory) = run.args("run --driver driver.toml --report out").arg(case).start();
    let ended = run.wait_with_output().expect("it ends");
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stdout));
    let trace = directory.path().join("out/cases").join(case).join("trace.jsonl");
    let trace = std::fs::read_to_string(trace).expect("the case has a trace");
    let asked = trace.lines().filter(|line| line.contains("\"CreateVolume\""));
    let size = |line: &str| Some(line.split_once("\"requiredBytes\":\"")?.1.split('"').next()?.to_owned());
    asked.filter_map(size).collect()
}

/// A driver inherits nothing that it could write to but its log: descriptor 3 is the worker's way to the run.
#[test]
fn driver_does_not_inherit_the_report() {
    if !has_root() {
        return;
    }
    let ended = Volproof::new().args("run --driver-cmd").arg("readlink /proc/self/fd/3 {socket}").run();
    assert_eq!(ended.code, Some(4), "{}", ended.told());
    assert!(ended.told().contains("it exited at once"), "{}", ended.told());
    assert!(!ended.told().contains("pipe:["), "{}", ended.told());
}
