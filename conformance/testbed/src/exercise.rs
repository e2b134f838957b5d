//! Files as applications use them: a seed decides what is done to them, and a model says what they must hold.
//!
//! Touches one directory and what is below it. A difference is said with the file, the offset, what was expected and
//! what was read, so that it can be looked up in a dump of the volume.

mod act;
mod dice;
mod expanse;
mod model;
mod perform;
mod uses;

use std::collections::BTreeSet;
use std::path::Path;
use std::{fmt, io};

use act::Act;
use dice::Dice;
use model::Model;

pub(crate) use expanse::{Expanse, Shape};
pub(crate) use uses::{lock_is_seen, refused};

/// Files of a directory, with their expected state.
#[derive(Debug, Clone)]
pub(crate) struct Exercise {
    seed: u64,
    dice: Dice,
    model: Model,
    /// The features that the file system lacks.
    lacks: BTreeSet<&'static str>,
}

impl Exercise {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, dice: Dice::new(seed), model: Model::default(), lacks: BTreeSet::new() }
    }

    /// Does a number of things to the files below a directory. Each range is read back at once.
    pub(crate) fn run(&mut self, root: &Path, steps: usize) -> Result<(), Failed> {
        for _ in 0..steps {
            let number = self.model.next_step();
            let act = Act::choose(&mut self.dice, &self.model);
            let said =
                |what: &dyn fmt::Display| format!("step {number} of seed {}, {act}: {what}", self.seed);
            let bytes = act.bytes(self.seed, number);
            match perform::perform(&act, root, &bytes) {
                Ok(()) => self.model.apply(&act, &bytes),
                Err(error) if is_unsupported(&error) => drop(self.lacks.insert(act.kind())),
                Err(error) => return Err(Failed::Refused(said(&error))),
            }
            match self.model.difference_of(root, act.file()) {
                Ok(Some(difference @ Difference::Content(_))) => {
                    return Err(Failed::Differs(said(&difference)));
                }
                // Attributes are compared with all files at the end.
                Ok(_) => {}
                Err(error) => return Err(Failed::Refused(said(&error))),
            }
        }
        self.set_times(root)
    }

    /// Gives each file a time that no clock shows, so that a later touch is seen.
    fn set_times(&mut self, root: &Path) -> Result<(), Failed> {
        for name in self.model.files() {
            let seconds = i64::try_from(1_000_000_000 + self.model.next_step()).unwrap_or(0);
            let act = Act::Time { name, seconds };
            perform::perform(&act, root, &[]).map_err(|error| Failed::Refused(format!("{act}: {error}")))?;
            self.model.apply(&act, &[]);
        }
        Ok(())
    }

    /// The first difference between the files below a directory and the expected ones.
    pub(crate) fn difference(&self, root: &Path) -> io::Result<Option<Difference>> {
        self.model.difference(root)
    }
}

/// Why files could not be used on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failed {
    /// The kernel refused the operation.
    Refused(String),
    /// The operation was done, and a read shows other data.
    Differs(String),
}

/// A file that is not as it was left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Difference {
    /// Its bytes, or its existence.
    Content(String),
    /// The file's metadata: mode, time, attributes, links.
    Attribute(String),
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Content(said) | Self::Attribute(said)) = self;
        f.write_str(said)
    }
}

/// Whether an error means that the file system lacks a feature, and not that it lost data.
fn is_unsupported(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::ENOTTY))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;

    fn directory(name: &str) -> PathBuf {
        let directory = std::env::temp_dir().join(format!("volproof-exercise-{}-{name}", std::process::id()));
        drop(fs::remove_dir_all(&directory));
        fs::create_dir_all(&directory).unwrap();
        directory
    }

    #[test]
    fn many_seeds_agree_with_the_file_system_of_this_machine() {
        let root = directory("agrees");
        for seed in 0..8 {
            let below = root.join(seed.to_string());
            fs::create_dir(&below).unwrap();
            let mut exercise = Exercise::new(seed);
            exercise.run(&below, 300).unwrap();
            assert_eq!(exercise.difference(&below).unwrap(), None, "seed {seed}");
        }
        fs::remove_dir_all(&root).unwrap();
    }

    /// Changes a file behind the model's back, and returns the difference that the model finds.
    fn after(name: &str, change: impl FnOnce(&Path, &Path)) -> Difference {
        let root = directory(name);
        let mut exercise = Exercise::new(5);
        exercise.run(&root, 300).unwrap();
        let changed = exercise.model.largest().expect("a file of some bytes");
        change(&root, &root.join(changed));
        let difference = exercise.difference(&root).unwrap().expect("the change is seen");
        fs::remove_dir_all(&root).unwrap();
        difference
    }

    #[test]
    fn byte_that_differs_is_named_with_its_offset() {
        use std::os::unix::fs::FileExt;
        let difference = after("byte", |_, path| {
            let file = fs::File::options().read(true).write(true).open(path).unwrap();
            let mut byte = [0];
            file.read_exact_at(&mut byte, 777).unwrap();
            file.write_all_at(&[!byte[0]], 777).unwrap();
        });
        assert!(
            matches!(&difference, Difference::Content(said) if said.contains("offset 777")),
            "{difference}"
        );
    }

    #[test]
    fn lost_tail_link_and_name_are_each_seen() {
        let cut = after("tail", |_, path| {
            let file = fs::File::options().write(true).open(path).unwrap();
            file.set_len(fs::metadata(path).unwrap().len() - 1).unwrap();
        });
        assert!(cut.to_string().contains("bytes long"), "{cut}");
        let linked = after("names", |root, path| fs::hard_link(path, root.join("deep/more")).unwrap());
        assert!(matches!(&linked, Difference::Attribute(said) if said.contains("the names of")), "{linked}");
        let gone = after("gone", |_, path| fs::remove_file(path).unwrap());
        assert!(gone.to_string().contains("is not there"), "{gone}");
    }
}
