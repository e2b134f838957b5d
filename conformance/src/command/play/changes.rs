//! The files of a play, read again when they change. Reads files, and writes for the player.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::play::CHANGED;
use crate::play::files::Files;

/// The pause between two looks at the files.
const LOOK: Duration = Duration::from_millis(200);

/// What tells a file from an earlier state of it.
type Mark = Option<(SystemTime, u64)>;

/// Gives changed files to the player, for ever. What cannot be applied is told, and then nothing changes.
pub(super) async fn follow(files: &[PathBuf], directory: &Path) {
    let mut applied = marks(files);
    let mut before = applied.clone();
    loop {
        tokio::time::sleep(LOOK).await;
        let now = marks(files);
        // An editor may write in several steps: a file counts when it has come to rest.
        let is_at_rest = now == before;
        before.clone_from(&now);
        if now == applied || !is_at_rest {
            continue;
        }
        applied = now;
        if let Err(why) = give(files, directory) {
            eprintln!("what is played stays as it is: {why}");
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
    // Never seen half written.
    let new = directory.join("changed.new");
    let written =
        harness::private::write(&new, &text).and_then(|()| std::fs::rename(&new, directory.join(CHANGED)));
    written.map_err(|error| format!("cannot tell the player: {error}"))
}
