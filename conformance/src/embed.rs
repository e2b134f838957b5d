//! The suite as a test target of a driver's own crate.
//!
//! With `harness = false`, `cargo test` runs the target's `main` with the arguments after `--`. It can be called by a user
//! (without arguments, or with filters and flags of `volproof run`), by nextest (`--list`, then `--exact NAME`), and by the
//! suite itself, whose cases execute the program again.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

use crate::command;

/// Runs the cases against the driver that a manifest describes: the whole `main` of a test target.
///
/// To be called first thing in it, for the reason [`main`](crate::main) gives. The path is relative to the
/// crate, which is where `cargo test` runs a test.
///
/// ```no_run
/// // tests/conformance.rs, with `harness = false` in Cargo.toml
/// fn main() -> std::process::ExitCode {
///     conformance::test("driver.toml")
/// }
/// ```
pub fn test(manifest: impl AsRef<Path>) -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    if let Some(code) = crate::hidden(&arguments) {
        return code;
    }
    let called = format!("cargo test --test {} --", target(&std::env::args_os().next().unwrap_or_default()));
    command::main(translated(manifest.as_ref(), arguments), Some(called))
}

/// The name of a test target, from its program: `target/debug/deps/name-0123456789abcdef`.
fn target(program: &OsStr) -> String {
    let stem = Path::new(program).file_stem().unwrap_or_default().to_string_lossy().into_owned();
    stem.rsplit_once('-').map(|(name, _)| name.to_owned()).unwrap_or(stem)
}

/// The arguments as a command line of `volproof`.
fn translated(manifest: &Path, arguments: Vec<OsString>) -> Vec<OsString> {
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let mut line: Vec<OsString> = vec!["volproof".into()];
    if has("--list") {
        line.extend(["list".into(), "--format=terse".into()]);
        // No case is ignored: a case that cannot run here is skipped when it is tried.
        line.extend(has("--ignored").then(|| "--exclude=*".into()));
        return line;
    }
    line.push("run".into());
    // The line that runs a case again names the manifest itself.
    if !has("--driver") {
        line.extend(["--driver".into(), manifest.into()]);
    }
    line.extend(arguments.into_iter().filter(|argument| !is_of_libtest(&argument.to_string_lossy())));
    line
}

/// Arguments that `cargo test` passes to every test program.
fn is_of_libtest(argument: &str) -> bool {
    const FLAGS: &[&str] =
        &["--exact", "--nocapture", "--no-capture", "--show-output", "--include-ignored", "--quiet", "-q"];
    const VALUES: &[&str] = &["--format=pretty", "--format=terse", "--test-threads="];
    FLAGS.contains(&argument) || VALUES.iter().any(|start| argument.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(given: &str, expected: &str) {
        let given = given.split_whitespace().map(OsString::from).collect();
        let line = translated(Path::new("driver.toml"), given);
        let line: Vec<_> = line.iter().map(|word| word.to_string_lossy()).collect();
        assert_eq!(line.join(" "), expected);
    }

    #[test]
    fn the_target_is_named_as_cargo_names_it() {
        assert_eq!(target("target/debug/deps/my-driver-0123456789abcdef".as_ref()), "my-driver");
    }

    #[test]
    fn people_and_test_runners_are_understood() {
        check("", "volproof run --driver driver.toml");
        check("publish --fail-fast", "volproof run --driver driver.toml publish --fail-fast");
        check("--list --format terse", "volproof list --format=terse");
        check("--list --format terse --ignored", "volproof list --format=terse --exclude=*");
        check(
            "--exact csi::publish::read_only_claim_cannot_be_written --nocapture",
            "volproof run --driver driver.toml csi::publish::read_only_claim_cannot_be_written",
        );
        check("--show-output --format=pretty --test-threads=1", "volproof run --driver driver.toml");
        check("--format=json", "volproof run --driver driver.toml --format=json");
    }
}
