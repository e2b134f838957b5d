//! Reads the manifests of a play again when they change, and passes them to the player.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::play::CHANGED;
use crate::play::files::Files;
use crate::terminal::note;

/// The pause between two looks at the files.
const LOOK: Duration = Duration::from_millis(200);

/// Time and size of a file: if they are the same, the file has not changed.
type Mark = Option<(SystemTime, u64)>;

/// Passes changed files to the player, for ever. Files that cannot be applied are reported and change nothing.
pub(super) async fn follow(files: &[PathBuf], directory: &Path) {
    let mut applied = marks(files);
    let mut before = applied.clone();
    loop {
        tokio::time::sleep(LOOK).await;
        let now = marks(files);
        // An editor may write in several steps: a file is read once it has not changed between two looks.
        let is_at_rest = now == before;
        before.clone_from(&now);
        if now == applied || !is_at_rest {
            continue;
        }
        applied = now;
        if let Err(why) = give(files, directory) {
            note!("what is played stays as it is: {why}");
        }
    }
}

fn marks(files: &[PathBuf]) -> Vec<Mark> {
    let mark = |path: &PathBuf| {
        let found = std::fs::metadata(path).ok()?;
        Some((found.modified().ok()?, found.len()))
    };
    files.iter().map(mark).collect()
}

fn give(files: &[PathBuf], directory: &Path) -> Result<(), String> {
    let read = |path: &PathBuf| {
        let text = std::fs::read_to_string(path);
        text.map(|text| (path.display().to_string(), text))
            .map_err(|error| format!("cannot read `{}`: {error}", path.display()))
    };
    let texts = files.iter().map(read).collect::<Result<Vec<_>, String>>()?;
    Files::parse(&texts).map_err(|(path, bad)| match bad.line {
        0 => format!("`{path}`: {}", bad.what),
        line => format!("`{path}`, line {line}: {}", bad.what),
    })?;
    let text = serde_json::to_string(&texts).map_err(|error| error.to_string())?;
    // Renamed into place, so that the player never reads half a file.
    let new = directory.join("changed.new");
    let written =
        harness::private::write(&new, &text).and_then(|()| std::fs::rename(&new, directory.join(CHANGED)));
    written.map_err(|error| format!("cannot send the changes to the player: {error}"))
}
