//! The data of a volume: files that are changed as by applications, and blocks with their own offsets in them. Both are
//! compared with the expected data wherever the volume is published next.

use std::io;
use std::panic::Location;
use std::path::Path;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use nix::sys::statvfs::statvfs;

use super::{Cx, Pod, Shared};
use crate::bed::StepError;
use crate::bed::node_calls::in_time;
use crate::exercise::{self, Difference, Exercise, Expanse, Failed, Shape};
use crate::failure::Result;

/// Files of a volume, with their expected content.
#[derive(Debug, Clone)]
pub struct Files {
    shared: Rc<Shared>,
    exercise: Arc<Mutex<Exercise>>,
}

/// Blocks over a large file or over a device.
#[derive(Debug)]
pub struct Blocks {
    shared: Rc<Shared>,
    expanse: Arc<Expanse>,
}

impl Cx {
    /// An empty set of files. The name makes their content different from that of other sets.
    pub fn files(&self, name: &str) -> Files {
        let exercise = Exercise::new(self.seed() ^ seed_of(name));
        Files { shared: self.shared(), exercise: Arc::new(Mutex::new(exercise)) }
    }

    /// Blocks at the start, in the middle and at the end of a file that takes half of the free space of a path's file system;
    /// `None` if too little is free.
    pub fn blocks_of_a_file(&self, name: &str, beside: &Path) -> Result<Option<Blocks>> {
        let free = statvfs(beside).map(|found| found.blocks_available() * found.fragment_size());
        let shape = Shape::of_file(free.map_err(io::Error::from)?);
        Ok(shape.map(|shape| self.blocks(name, shape)))
    }

    /// Blocks all over a device of a size in bytes.
    pub fn blocks_of_a_device(&self, name: &str, bytes: u64) -> Blocks {
        self.blocks(name, Shape::of_device(bytes))
    }

    fn blocks(&self, name: &str, shape: Shape) -> Blocks {
        let expanse = Expanse::new(self.seed() ^ seed_of(name), shape);
        Blocks { shared: self.shared(), expanse: Arc::new(expanse) }
    }

    /// The uses of files by applications that fail at a path, a line each.
    #[track_caller]
    pub fn refused_uses(&self, at: &Path) -> impl Future<Output = Result<Vec<String>>> + use<> {
        let doing = self.shared.begin("using files as applications do", Location::caller());
        let at = at.to_owned();
        async move {
            let refused = in_time("using files", move || exercise::refused(&at, "volproof-uses")).await;
            let refused =
                doing.done(refused.and_then(|refused| refused.map_err(|error| unusable(&error))))?;
            Ok(refused.into_iter().map(|use_| format!("{}: {}", use_.action, use_.outcome)).collect())
        }
    }

    /// Whether a lock of a file that is held at one path is seen at another one.
    #[track_caller]
    pub fn lock_is_seen(&self, one: &Path, two: &Path) -> impl Future<Output = Result<bool>> + use<> {
        let doing = self.shared.begin("locking a file", Location::caller());
        let (one, two) = (one.to_owned(), two.to_owned());
        async move {
            let seen = in_time("locking", move || exercise::lock_is_seen(&one, &two)).await;
            doing.done(seen.and_then(|seen| seen.map_err(|error| unusable(&error))))
        }
    }
}

impl Files {
    /// Does a number of further things to them, at a path of the volume. Each is read back at once.
    #[track_caller]
    pub fn change(&self, at: &Path, steps: usize) -> impl Future<Output = Result> + use<> {
        let doing = self.shared.begin(&format!("files.change({steps})"), Location::caller());
        let (exercise, at, cx) = (Arc::clone(&self.exercise), at.to_owned(), self.cx());
        async move {
            let run = move || exercise.lock().unwrap_or_else(PoisonError::into_inner).run(&at, steps);
            match doing.done(in_time("using files", run).await)? {
                Ok(()) => Ok(()),
                Err(Failed::Differs(said)) => {
                    let cause = format!("A file does not hold what was just written: {said}.");
                    cx.keeps("DRV-160", "NodePublishVolume", false, &cause)
                }
                Err(Failed::Refused(said)) => {
                    let chain = vec!["A file of the volume cannot be used.".to_owned(), said];
                    doing.done(Err(StepError::Broken(chain)))
                }
            }
        }
    }

    /// Checks that the files at a path of a volume are as they were left. `after` says in the finding what has happened since.
    #[track_caller]
    pub fn are_kept(&self, at: &Path, method: &str, after: &str) -> impl Future<Output = Result> + use<> {
        let doing = self.shared.begin(&format!("files.are_kept(\"{after}\")"), Location::caller());
        let (exercise, at, cx) = (Arc::clone(&self.exercise), at.to_owned(), self.cx());
        let (method, after) = (method.to_owned(), after.to_owned());
        async move {
            let look = move || exercise.lock().unwrap_or_else(PoisonError::into_inner).difference(&at);
            let difference = doing.done(in_time("reading files", look).await)?;
            let (content, attribute) = match difference {
                Ok(None) => (None, None),
                Ok(Some(Difference::Content(said))) => (Some(said), None),
                Ok(Some(Difference::Attribute(said))) => (None, Some(said)),
                Err(error) => (Some(format!("it cannot be read: {error}")), None),
            };
            for (promise, said) in [("DRV-160", content), ("DRV-161", attribute)] {
                let cause =
                    format!("A file is not as it was left after {after}: {}.", said.as_deref().unwrap_or(""));
                cx.keeps(promise, &method, said.is_none(), &cause)?;
            }
            Ok(())
        }
    }

    /// A copy of the expected files, for a copy of the volume: later changes of one are not expected of the other.
    #[must_use]
    pub fn as_of_now(&self) -> Self {
        let exercise = self.exercise.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Self { shared: Rc::clone(&self.shared), exercise: Arc::new(Mutex::new(exercise)) }
    }

    fn cx(&self) -> Cx {
        Cx { shared: Rc::clone(&self.shared) }
    }
}

impl Blocks {
    /// Writes all of them to a file or a device, durably.
    #[track_caller]
    pub fn write(&self, to: &Path) -> impl Future<Output = Result> + use<> {
        let doing = self.shared.begin("blocks.write()", Location::caller());
        let (expanse, to) = (Arc::clone(&self.expanse), to.to_owned());
        async move {
            let written = in_time("writing blocks", move || expanse.write(&to)).await;
            doing.done(written.and_then(|written| written.map_err(|error| unusable(&error))))
        }
    }

    /// Checks that each block is in a file or on a device. `after` says in the finding what has happened since.
    #[track_caller]
    pub fn are_kept(
        &self,
        promise: &'static str,
        at: &Path,
        method: &str,
        after: &str,
    ) -> impl Future<Output = Result> + use<> {
        let doing = self.shared.begin(&format!("blocks.are_kept(\"{after}\")"), Location::caller());
        let (expanse, at, cx) =
            (Arc::clone(&self.expanse), at.to_owned(), Cx { shared: Rc::clone(&self.shared) });
        let name = at.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let (method, after) = (method.to_owned(), after.to_owned());
        async move {
            let difference = doing.done(in_time("reading blocks", move || expanse.difference(&at)).await)?;
            let said = difference.unwrap_or_else(|error| Some(format!("it cannot be read: {error}")));
            let cause =
                format!("`{name}` is not as it was left after {after}: {}.", said.as_deref().unwrap_or(""));
            cx.keeps(promise, &method, said.is_none(), &cause)
        }
    }
}

impl Pod {
    /// The path on the node of a path in the pod's container.
    #[track_caller]
    pub fn path(&self, path: &str) -> Result<std::path::PathBuf> {
        let doing = self.shared.begin(&format!("{}.path(\"{path}\")", self.spec.name), Location::caller());
        doing.done(self.shared.bed.real(&self.spec, path))
    }
}

fn seed_of(name: &str) -> u64 {
    name.bytes().fold(0x51ed, |seed, byte| seed.rotate_left(7) ^ u64::from(byte))
}

fn unusable(error: &io::Error) -> StepError {
    StepError::Broken(vec!["The volume cannot be used.".to_owned(), error.to_string()])
}
