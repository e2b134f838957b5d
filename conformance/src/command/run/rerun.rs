//! `--rerun`: runs again each time the driver changes: its program, a file that its command names, or its manifest.
//!
//! Reads only the attributes of these files.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use harness::manifest::Manifest;
use tokio::signal::unix::{SignalKind, signal};

use super::super::{Exit, on_path, runtime};
use crate::terminal::note;

/// The pause between two looks at the files.
const GLANCE: Duration = Duration::from_millis(200);

/// A file counts as completely written after this number of looks without a change.
const STILL: u32 = 2;

/// Attributes of a file that change when it is written or replaced.
type Stamp = (u64, u64, i64, i64);

/// The files of a driver, as they were when a run began.
#[derive(Debug)]
pub(super) struct Watched {
    files: Vec<PathBuf>,
    before: Vec<Option<Stamp>>,
}

impl Watched {
    pub(super) fn of(manifest: &Manifest, file: Option<&Path>) -> Self {
        // With an image, its file stands for all that is in it.
        let image = manifest
            .image
            .as_ref()
            .map(|image| if image.is_dir() { image.join("index.json") } else { image.clone() });
        let commands = [&manifest.command, &manifest.controller_command];
        let commands = commands.into_iter().filter(|_| image.is_none());
        let root = manifest.root.as_deref();
        let programs = commands.clone().filter_map(|command| program(command.first()?, root));
        // The words of the command include the script of an interpreter.
        let words = commands.flatten().map(|word| below(root, Path::new(word)));
        let words = words.filter(|word| word.is_file());
        let mut files: Vec<PathBuf> =
            file.map(Path::to_owned).into_iter().chain(image.clone()).chain(programs).chain(words).collect();
        files.sort();
        files.dedup();
        Self { before: stamps(&files), files }
    }

    /// The same files, as they are now.
    pub(super) fn again(self) -> Self {
        Self { before: stamps(&self.files), ..self }
    }

    /// Waits until a file has changed, and all files exist and are completely written. Returns `false` after Ctrl-C.
    pub(super) fn wait(&self) -> Result<bool, Exit> {
        let names: Vec<String> = self.files.iter().map(|file| format!("`{}`", file.display())).collect();
        note!("  runs again when {} changes; Ctrl-C ends it", names.join(" or "));
        runtime()?.block_on(async {
            let failed = |error: std::io::Error| {
                Exit::environment("cannot listen for signals").details([error.to_string()])
            };
            let mut polite = signal(SignalKind::terminate()).map_err(failed)?;
            tokio::select! {
                _ = tokio::signal::ctrl_c() => Ok(false),
                _ = polite.recv() => Ok(false),
                () = self.changed() => Ok(true),
            }
        })
    }

    async fn changed(&self) {
        let (mut last, mut still) = (self.before.clone(), 0);
        loop {
            let seen = stamps(&self.files);
            let is_whole = seen != self.before && seen.iter().all(Option::is_some);
            still = if is_whole && seen == last { still + 1 } else { 0 };
            if still >= STILL {
                return;
            }
            last = seen;
            tokio::time::sleep(GLANCE).await;
        }
    }
}

fn stamps(files: &[PathBuf]) -> Vec<Option<Stamp>> {
    let stamp = |found: Metadata| (found.ino(), found.len(), found.mtime(), found.mtime_nsec());
    files.iter().map(|file| file.metadata().ok().map(stamp)).collect()
}

/// The file of a program, whether it is there or not; one without a slash is looked up as a shell does.
fn program(word: &str, root: Option<&Path>) -> Option<PathBuf> {
    match root {
        _ if word.contains('/') => Some(below(root, Path::new(word))),
        None => on_path(word),
        Some(_) => {
            let path = std::env::var_os("PATH")?;
            std::env::split_paths(&path).map(|at| below(root, &at.join(word))).find(|file| file.is_file())
        }
    }
}

/// The file of a path in the driver's own root, if it has one.
fn below(root: Option<&Path>, path: &Path) -> PathBuf {
    match root {
        Some(root) => root.join(path.strip_prefix("/").unwrap_or(path)),
        None => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watched(directory: &Path) -> Watched {
        let driver = directory.join("driver.sh");
        let manifest = Manifest::from_command(&format!("sh {} --endpoint={{endpoint}}", driver.display()));
        Watched::of(&manifest.expect("a command"), None)
    }

    #[test]
    fn program_and_script_of_a_command_are_watched() {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::write(directory.path().join("driver.sh"), "").expect("a file");
        let watched = watched(directory.path());
        let files: Vec<&Path> = watched.files.iter().map(PathBuf::as_path).collect();
        assert_eq!(files.len(), 2, "{files:?}");
        assert!(files.iter().any(|file| file.ends_with("sh")), "{files:?}");
        assert!(files.contains(&directory.path().join("driver.sh").as_path()), "{files:?}");
    }

    #[test]
    fn program_in_the_root_of_an_image_is_watched_there() {
        let image = tempfile::tempdir().expect("a directory");
        let driver = image.path().join("usr/bin/my-driver");
        std::fs::create_dir_all(driver.parent().expect("a directory")).expect("directories");
        std::fs::write(&driver, "").expect("a file");
        for command in ["/usr/bin/my-driver {endpoint}", "my-driver {endpoint}"] {
            let mut manifest = Manifest::from_command(command).expect("a command");
            manifest.root = Some(image.path().to_owned());
            assert_eq!(Watched::of(&manifest, None).files, [driver.as_path()], "{command}");
        }
    }

    #[test]
    fn image_is_watched_in_place_of_what_is_in_it() {
        let directory = tempfile::tempdir().expect("a directory");
        let image = directory.path().join("driver.tar");
        for (is_layout, watched) in [(false, image.clone()), (true, image.join("index.json"))] {
            if is_layout {
                std::fs::create_dir(&image).expect("a directory");
            }
            let manifest = Manifest::from_command_with_image("/bin/sh {endpoint}", Some(&image));
            assert_eq!(Watched::of(&manifest.expect("a command"), None).files, [watched]);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn change_is_seen_once_the_file_is_whole() {
        let directory = tempfile::tempdir().expect("a directory");
        let driver = directory.path().join("driver.sh");
        std::fs::write(&driver, "").expect("a file");
        let watched = watched(directory.path());
        let changes = async |limit: u64| {
            tokio::time::timeout(Duration::from_secs(limit), watched.changed()).await.is_ok()
        };
        assert!(!changes(10).await, "nothing has changed");
        // As a linker does: it removes the old file first.
        std::fs::remove_file(&driver).expect("it is there");
        assert!(!changes(10).await, "it is not whole");
        std::fs::write(&driver, "exec fake-csi").expect("a file");
        assert!(changes(10).await);
    }
}
