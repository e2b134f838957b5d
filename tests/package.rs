//! `cargo xtask package`: what it writes is complete, and is read by the tools of those who install it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tests::{built, has_root, root, xtask};

/// The files of an installation, below the root of a package.
const FILES: [&str; 7] = [
    "bin/volproof",
    "share/bash-completion/completions/volproof",
    "share/doc/volproof/README.md",
    "share/doc/volproof/copyright",
    "share/fish/vendor_completions.d/volproof.fish",
    "share/man/man1/volproof.1.gz",
    "share/zsh/vendor-completions/_volproof",
];

/// A script in place of a release: it is the program of these tests, and costs no time to pack.
fn stand_in(directory: &Path) -> PathBuf {
    let file = directory.join("stand-in");
    fs::write(&file, format!("#!/bin/sh\nexec {} \"$@\"\n", built().display())).expect("a script");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("it is ours");
    file
}

fn has(program: &str) -> bool {
    let is_there = Command::new(program).arg("--version").output().is_ok();
    if !is_there {
        eprintln!("skipped: needs {program}");
    }
    is_there
}

fn package(binary: &Path, out: &Path, arguments: &[&str]) {
    let mut command = xtask("package");
    command.args(["--no-install", "--binary"]);
    let output = command.arg(binary).arg("--out").arg(out).args(arguments).output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The lines that a command prints.
fn lines(command: &mut Command) -> Vec<String> {
    let output = command.output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text").lines().map(str::to_owned).collect()
}

/// The only file in a directory whose name has an end.
fn only(directory: &Path, end: &str) -> PathBuf {
    let files = fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("an entry").path());
    let found: Vec<PathBuf> = files.filter(|file| file.to_string_lossy().ends_with(end)).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    found.into_iter().next().expect("one")
}

/// Asserts that a directory has the files of an installation, readable for everybody, and that they are what they should.
fn check_installation(usr: &Path) {
    for file in FILES {
        let mode =
            fs::metadata(usr.join(file)).unwrap_or_else(|error| panic!("{file}: {error}")).permissions();
        let expected = if file.starts_with("bin/") { 0o755 } else { 0o644 };
        assert_eq!(mode.mode() & 0o777, expected, "{file}");
    }
    let explained = lines(Command::new(usr.join("bin/volproof")).args(["explain", "DRV-055"]));
    assert!(explained[0].starts_with("DRV-055"), "{explained:?}");
    let manual = lines(Command::new("gzip").arg("-dc").arg(usr.join("share/man/man1/volproof.1.gz")));
    assert!(
        manual.iter().any(|line| line.contains(".SH \"EXIT STATUS\"") || line.contains(".SH NAME")),
        "{manual:?}"
    );
    lines(Command::new("bash").arg("-n").arg(usr.join("share/bash-completion/completions/volproof")));
}

#[test]
fn tarball_and_debian_package_have_the_installation_and_are_the_same_again() {
    if !has("dpkg-deb") {
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    let binary = stand_in(place.path());
    let written = |name: &str| {
        let out = place.path().join(name);
        package(&binary, &out, &["--only", "tar", "--only", "deb"]);
        [only(&out, ".tar.gz"), only(&out, ".deb")]
    };
    let [tarball, deb] = written("one");

    let unpacked = place.path().join("unpacked");
    fs::create_dir(&unpacked).expect("a directory");
    lines(Command::new("tar").arg("-xzf").arg(&tarball).arg("--strip-components=1").arg("-C").arg(&unpacked));
    check_installation(&unpacked);

    let installed = place.path().join("installed");
    lines(Command::new("dpkg-deb").arg("-x").arg(&deb).arg(&installed));
    check_installation(&installed.join("usr"));
    let fields = lines(Command::new("dpkg-deb").arg("-f").arg(&deb));
    assert_eq!(fields[0], "Package: volproof");
    assert!(!fields.iter().any(|field| field.starts_with("Depends")), "it is linked statically: {fields:?}");

    for (one, again) in [tarball, deb].iter().zip(written("again")) {
        assert!(fs::read(one).expect("a file") == fs::read(&again).expect("a file"), "{}", again.display());
    }
}

#[test]
fn image_has_the_installation_above_its_base() {
    if !has("umoci") || !has("mmdebstrap") {
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    let base = place.path().join("base.tar");
    let debian = place.path().join("debian/etc");
    fs::create_dir_all(&debian).expect("directories");
    fs::write(debian.join("debian_version"), "13.0\n").expect("a file");
    lines(Command::new("tar").arg("-cf").arg(&base).arg("-C").arg(place.path().join("debian")).arg("."));
    let out = place.path().join("out");
    package(
        &stand_in(place.path()),
        &out,
        &["--only", "image", "--base", base.to_str().expect("the path is text")],
    );

    let layout = only(&out, "-image");
    let index = read(&layout.join("index.json"));
    let manifest = read(&blob(&layout, &index["manifests"][0]));
    let config = read(&blob(&layout, &manifest["config"]));
    assert_eq!(config["config"]["Entrypoint"][0], "/usr/bin/volproof");
    let unpacked = place.path().join("unpacked");
    fs::create_dir(&unpacked).expect("a directory");
    for layer in manifest["layers"].as_array().expect("layers") {
        lines(Command::new("tar").arg("-xzf").arg(blob(&layout, layer)).arg("-C").arg(&unpacked));
    }
    check_installation(&unpacked.join("usr"));
    assert!(unpacked.join("etc/debian_version").exists());
}

#[test]
fn program_that_needs_libraries_is_not_packed() {
    let place = tempfile::tempdir().expect("a directory");
    let mut command = xtask("package");
    command.args(["--no-install", "--only", "tar"]);
    let output =
        command.arg("--out").arg(place.path()).args(["--binary", "/bin/true"]).output().expect("cargo runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.contains("`/bin/true` needs libraries of this machine"), "{said}");
}

/// The files of examples that others copy name what is there.
#[test]
fn examples_for_ci_name_what_is_there() {
    let action = fs::read_to_string(root().join("examples/ci/action.yml")).expect("the action");
    let template = fs::read_to_string(root().join("examples/ci/gitlab.yml")).expect("the template");
    let job = script("indexed-job.yaml").0;
    let help = lines(Command::new(built()).args(["run", "--help"])).join("\n");
    for text in [action, template, job] {
        let runs: Vec<&str> = text.lines().filter(|line| line.contains("volproof run ")).collect();
        assert!(!runs.is_empty());
        for flag in runs.iter().flat_map(|line| line.split([' ', '='])).filter(|word| word.starts_with("--"))
        {
            assert!(help.contains(flag), "{flag}");
        }
    }
}

/// The script of a job's container, and its variables.
fn script(file: &str) -> (String, Vec<(String, String)>) {
    let text = fs::read_to_string(root().join("examples/ci").join(file)).expect("the example");
    let documents = text.split("\n---\n").map(|text| serde_yaml_ng::from_str::<Value>(text).expect("YAML"));
    let job = documents.last().expect("a job");
    let container = &job["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["command"][0], "sh");
    let variables = container["env"].as_array().expect("variables").iter();
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let variables = variables.map(|variable| (text(&variable["name"]), text(&variable["value"])));
    (text(&container["args"][0]), variables.collect())
}

/// What the pods of the Indexed Job run: each shard in turn, and then one report of all.
#[test]
fn shards_of_an_indexed_job_make_one_report() {
    if !has_root() {
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    let (reports, bin) = (place.path().join("reports"), place.path().join("bin"));
    fs::create_dir_all(&reports).expect("a directory");
    fs::create_dir(&bin).expect("a directory");
    std::os::unix::fs::symlink(built(), bin.join("volproof")).expect("a link");
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").expect("there is one"));
    let driver = root().join("conformance/tests/embed.toml");
    let run = |file: &str, index: usize| {
        let (script, variables) = script(file);
        let mut command = Command::new("sh");
        command.args(["-c", &script]).envs(variables).env("PATH", &path).env("REPORTS", &reports);
        command.env("DRIVER", &driver).env("SHARDS", "2").env("JOB_COMPLETION_INDEX", index.to_string());
        command.env("ARGUMENTS", "--tier host csi::identity").output().expect("it runs")
    };
    for index in 0..2 {
        let shard = run("indexed-job.yaml", index);
        assert!(shard.status.success(), "{}", String::from_utf8_lossy(&shard.stderr));
    }
    let merged = run("merge-job.yaml", 0);
    assert!(merged.status.success(), "{}", String::from_utf8_lossy(&merged.stderr));
    let cases = |directory: &str| {
        let results = read(&reports.join(directory).join("results.json"));
        results["cases"].as_array().expect("cases").len()
    };
    assert!(cases("shard-0") > 0 && cases("shard-1") > 0);
    assert_eq!(cases("whole"), cases("shard-0") + cases("shard-1"));
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).expect("a file")).expect("JSON")
}

/// The file of a blob, whose digest is right.
fn blob(layout: &Path, descriptor: &Value) -> PathBuf {
    let digest = descriptor["digest"].as_str().expect("a digest").strip_prefix("sha256:").expect("SHA-256");
    let file = layout.join("blobs/sha256").join(digest);
    let sum = lines(Command::new("sha256sum").arg(&file));
    assert!(sum[0].starts_with(digest), "{sum:?}");
    file
}
