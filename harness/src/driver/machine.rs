//! The paths of the machine that a driver needs in its sandbox to start. Looks for files, and changes none.

use std::path::{Path, PathBuf};

use crate::ledger;
use crate::manifest::{Manifest, Secrets};
use crate::sandbox::MachineOptions;
use crate::standing;

/// Places of which a sandbox has its own.
const COVERED: [&str; 2] = ["/tmp", "/run"];

/// Characters that end a path in a shell's command line.
const ENDS: [char; 15] = [' ', '\t', '\n', '"', '\'', '`', ';', '&', '|', '<', '>', '(', ')', '{', ','];

/// The parts of the machine that a driver sees: what its manifest opens, and the paths that its command names below a
/// place that the sandbox has of its own.
pub fn machine_options(manifest: &Manifest) -> MachineOptions {
    options(manifest, standing::in_guest())
}

fn options(manifest: &Manifest, in_guest: bool) -> MachineOptions {
    let Manifest { command, controller_command, env, per_case, .. } = manifest;
    let commands = [command, controller_command, &per_case.prepare, &per_case.cleanup].into_iter().flatten();
    let mut shown: Vec<PathBuf> = commands.chain(env.values()).flat_map(|word| named_in(word)).collect();
    shown.extend(manifest.guest.files.iter().cloned());
    shown.extend(std::env::current_dir());
    let path = std::env::var_os("PATH").unwrap_or_default();
    let programs: Vec<PathBuf> = std::env::split_paths(&path).collect();
    shown.extend(programs);
    let mut shown: Vec<PathBuf> = shown.into_iter().filter_map(directory_of).collect();
    // The caller that sends these objects and secrets reads them in the sandbox.
    shown.extend(manifest.kubernetes.iter().flat_map(|kubernetes| kubernetes.objects.clone()));
    shown.extend(manifest.all_secrets().flat_map(Secrets::files).cloned());
    shown.retain(|path| COVERED.iter().any(|place| path.starts_with(place) && path != Path::new(place)));
    // Runs and their janitors only have business there.
    let ledgers = ledger::base();
    shown.retain(|path| !path.starts_with(&ledgers));
    let mut open = manifest.host_paths.clone();
    if in_guest {
        // Only what the driver needs lies there: the guest was booted with it.
        let brought = std::fs::read_dir("/tmp").into_iter().flatten().flatten();
        shown.extend(brought.map(|entry| entry.path()));
        // They are paths of the machine that the guest runs on.
        open.retain(|path| path.exists());
    }
    MachineOptions {
        // In a guest, disks come and go.
        own_dev: !in_guest,
        open,
        shown,
        read_only: manifest.root.clone().into_iter().collect(),
        ..MachineOptions::default()
    }
}

/// The paths below a covered place in a word of a command line.
fn named_in(word: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for place in COVERED {
        for (at, _) in word.match_indices(&format!("{place}/")) {
            // `/var/run/x` names no `/run/x`, and `{state}/tmp/x` no `/tmp/x`.
            let is_whole =
                !word[..at].ends_with(|before: char| before.is_alphanumeric() || "._-/}".contains(before));
            if is_whole {
                let path = &word[at..];
                found.push(PathBuf::from(&path[..path.find(ENDS).unwrap_or(path.len())]));
            }
        }
    }
    found
}

/// The directory that a program and what belongs to it lie in; the path itself where that is a covered place.
fn directory_of(path: PathBuf) -> Option<PathBuf> {
    if path.is_dir() {
        return Some(path);
    }
    let parent = path.parent()?;
    match COVERED.iter().any(|place| parent == Path::new(place)) {
        true => path.exists().then_some(path),
        // Also of a file that is still to be made.
        false => parent.is_dir().then(|| parent.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_below_covered_places_are_found_in_a_command() {
        let named =
            |word: &str| named_in(word).iter().map(|path| path.display().to_string()).collect::<Vec<_>>();
        assert_eq!(named("/tmp/x/driver"), ["/tmp/x/driver"]);
        assert_eq!(named("--config=/run/a/b.toml"), ["/run/a/b.toml"]);
        assert_eq!(
            named("exec '/tmp/d/run.sh' \"$@\" >/tmp/log; echo /tmp/e"),
            ["/tmp/d/run.sh", "/tmp/log", "/tmp/e"]
        );
        assert_eq!(named("/var/tmp/x /var/run/y"), Vec::<String>::new());
        assert_eq!(named("{state}/tmp/x"), Vec::<String>::new());
    }

    #[test]
    fn directory_of_a_program_is_shown_and_tmp_as_a_whole_never() {
        let dir = tempfile::tempdir_in("/tmp").unwrap();
        let (program, file) = (dir.path().join("driver"), tempfile::NamedTempFile::new_in("/tmp").unwrap());
        std::fs::write(&program, "").unwrap();
        let words = [program.to_str().unwrap(), file.path().to_str().unwrap(), "/tmp/no such file"];
        let manifest = Manifest { command: words.map(str::to_owned).into(), ..Manifest::default() };
        let shown = machine_options(&manifest).shown;
        assert!(
            shown.contains(&dir.path().to_owned()) && shown.contains(&file.path().to_owned()),
            "{shown:?}"
        );
        assert!(!shown.contains(&PathBuf::from("/tmp")), "{shown:?}");
    }

    #[test]
    fn guest_shows_its_devices_and_the_files_that_were_brought_to_it() {
        let file = tempfile::NamedTempFile::new_in("/tmp").unwrap();
        let host_paths = vec![PathBuf::from("/dev/null"), PathBuf::from("/dev/no such device")];
        let manifest = Manifest { host_paths: host_paths.clone(), ..Manifest::default() };
        let (here, guest) = (options(&manifest, false), options(&manifest, true));
        assert_eq!((here.own_dev, here.open), (true, host_paths));
        assert!(!here.shown.contains(&file.path().to_owned()), "{:?}", here.shown);
        assert_eq!((guest.own_dev, guest.open), (false, vec![PathBuf::from("/dev/null")]));
        assert!(guest.shown.contains(&file.path().to_owned()), "{:?}", guest.shown);
    }
}
