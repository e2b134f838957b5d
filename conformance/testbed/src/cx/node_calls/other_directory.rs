//! A directory of the node that no call names: a driver that changes it has taken a field of a call for a path.

use std::panic::Location;
use std::path::{Path, PathBuf};

use super::NodeCalls;
use crate::bed::StepError;
use crate::failure::Result;

/// The name of the inner directory, and the content of its file.
const KEPT: &str = "kept";

/// A directory with a file and a directory that have to stay, and nothing else.
#[derive(Debug)]
pub struct OtherDirectory {
    path: PathBuf,
}

impl NodeCalls {
    /// Makes a directory with these contents beside the targets.
    #[track_caller]
    pub fn makes_other_directory(&self, name: &str) -> Result<OtherDirectory> {
        let path = self.directory.join(name);
        let doing = self.begin("laying out a directory", &path, Location::caller());
        let kept = path.join(KEPT);
        let made = std::fs::create_dir_all(&kept).and_then(|()| std::fs::write(kept.join("file"), KEPT));
        doing.done(made.map_err(|error| StepError::ours(&error)))?;
        Ok(OtherDirectory { path })
    }
}

impl OtherDirectory {
    /// Paths of a name in it: two lead there from any directory that a driver joins them to, one is absolute.
    pub fn paths_to(&self, name: &str) -> [String; 3] {
        let target = self.path.join(name);
        let target = target.to_string_lossy();
        // Deeper than any directory of a driver: the parent of the root is the root.
        let up = "../".repeat(8);
        [
            format!("{up}{}", target.trim_start_matches('/')),
            format!("a/../{up}{}", &target[1..]),
            target.to_string(),
        ]
    }

    /// Whether the directory has its old files and no others.
    pub fn is_untouched(&self) -> bool {
        let entries = |path: &Path| std::fs::read_dir(path).map_or(0, Iterator::count);
        let kept = self.path.join(KEPT);
        let content = std::fs::read(kept.join("file")).unwrap_or_default();
        entries(&self.path) == 1 && entries(&kept) == 1 && content == KEPT.as_bytes()
    }
}
