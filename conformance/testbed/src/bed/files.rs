//! Files in a pod's volumes, as its container would see them: written, read, and refused.
//!
//! Touches files below a target that the driver has published, and nothing else.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use tokio::task::JoinHandle;

use super::{Bed, PodSpec, Result, StepError, nfs};

/// The time limit of an access to a file. A driver's file system may be dead behind a live mount.
const PATIENCE: Duration = Duration::from_secs(20);

impl Bed {
    /// Writes a file, makes it durable and reads it back.
    pub(crate) async fn write_file(&self, pod: &PodSpec, path: &str, text: &str) -> Result {
        let (file, content) = (self.real(pod, path)?, text.to_owned());
        let done = in_time(path, move || write(&file, &content).map(|()| file)).await?;
        let file =
            done.map_err(|error| broken(format!("`{path}` cannot be written in `{}`", pod.name), &error))?;
        let read = in_time(path, move || read(&file)).await?;
        compare(pod, path, text, read)
    }

    /// Reads a file and compares it.
    pub(crate) async fn read_file(&self, pod: &PodSpec, path: &str, text: &str) -> Result {
        let file = self.real(pod, path)?;
        compare(pod, path, text, in_time(path, move || read(&file)).await?)
    }

    /// Whether a file can be read and holds a text.
    pub(crate) async fn file_holds(&self, pod: &PodSpec, path: &str, text: &str) -> Result<bool> {
        let file = self.real(pod, path)?;
        Ok(in_time(path, move || read(&file)).await?.is_ok_and(|found| found == text))
    }

    /// Tries to write a file, and finds that it may not.
    pub(crate) async fn write_is_refused(&self, pod: &PodSpec, path: &str) -> Result {
        let file = self.real(pod, path)?;
        match in_time(path, move || write(&file, "never")).await? {
            Err(error) if error.raw_os_error() == Some(Errno::EROFS as i32) => Ok(()),
            Err(error) => {
                Err(broken(format!("writing `{path}` in `{}` fails, but not as read-only", pod.name), &error))
            }
            Ok(()) => Err(StepError::Broken(vec![format!(
                "`{path}` could be written in `{}`, which has the volume read-only.",
                pod.name
            )])),
        }
    }

    /// Reads a file, and finds that it fails just so.
    pub(crate) async fn read_fails(&self, pod: &PodSpec, path: &str, expected: Errno) -> Result {
        let file = self.real(pod, path)?;
        let wrong = |said: String| Err(StepError::Broken(vec![said]));
        match in_time(path, move || read(&file)).await? {
            Err(error) if error.raw_os_error() == Some(expected as i32) => Ok(()),
            Err(error) => wrong(format!("Reading `{path}` fails, but not with {expected}: {error}.")),
            Ok(text) => wrong(format!("`{path}` can be read, and holds {text:?}.")),
        }
    }

    /// Begins to read a file that will not answer.
    pub(crate) fn begin_reading(&self, pod: &PodSpec, path: &str) -> Result<JoinHandle<io::Result<String>>> {
        let file = self.real(pod, path)?;
        Ok(tokio::task::spawn_blocking(move || read(&file)))
    }

    /// Begins to write a file over and over, of which nothing need ever be durable. It ends with this process.
    pub(crate) fn begin_writing(&self, pod: &PodSpec, path: &str) -> Result {
        let file = self.real(pod, path)?;
        let mut file = File::create(file).map_err(|error| StepError::ours(&error))?;
        drop(std::thread::spawn(move || {
            let block = vec![b'x'; 64 << 10];
            for number in 0_u64.. {
                let written =
                    file.seek(SeekFrom::Start((number % 16) << 16)).and_then(|_| file.write_all(&block));
                if written.is_err() {
                    return;
                }
            }
        }));
        Ok(())
    }

    /// Checks that a file still does not answer.
    pub(crate) async fn is_held(&self, reading: &mut JoinHandle<io::Result<String>>, path: &str) -> Result {
        match tokio::time::timeout(HELD, reading).await {
            Err(_) => Ok(()),
            Ok(answer) => Err(StepError::Broken(vec![format!(
                "`{path}` answers though its server does not: {answer:?}."
            )])),
        }
    }

    /// Waits until it answers, and compares.
    pub(crate) async fn end_reading(
        &self,
        pod: &PodSpec,
        path: &str,
        text: &str,
        reading: JoinHandle<io::Result<String>>,
    ) -> Result {
        match tokio::time::timeout(self.limit, reading).await {
            Ok(Ok(answer)) => compare(pod, path, text, answer),
            Ok(Err(panicked)) => Err(StepError::ours(&panicked)),
            Err(_) => Err(StepError::Broken(vec![format!(
                "`{path}` did not answer within {} s after its server came back.",
                self.limit.as_secs()
            )])),
        }
    }

    /// The path on the node of a path in the container.
    pub(crate) fn real(&self, pod: &PodSpec, path: &str) -> Result<PathBuf> {
        let inside =
            |mount: &&super::MountSpec| !mount.device && Path::new(path).starts_with(&mount.mount.path);
        let mount = pod.mounts.iter().find(inside);
        let Some(mount) = mount else {
            return Err(StepError::Ours(vec![format!("`{path}` is in no volume of the pod `{}`", pod.name)]));
        };
        let symbol = format!("<publish:{}/{}>", mount.volume, pod.name);
        let target = match self.nfs.serves(&mount.volume) {
            true => self.journal_of(&pod.name).symbols().in_pod(nfs::PLUGIN, &mount.volume, &pod.name),
            false => self.journal_of(&pod.name).symbols().real(&symbol),
        };
        let target = target.ok_or_else(|| StepError::Ours(vec![format!("`{symbol}` stands for no path")]))?;
        let below = Path::new(path).strip_prefix(&mount.mount.path).expect("it was just looked at");
        Ok(target.join(below))
    }
}

/// The time after which a read counts as one without an answer.
const HELD: Duration = Duration::from_secs(1);

async fn in_time<T: Send + 'static>(path: &str, work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    match tokio::time::timeout(PATIENCE, tokio::task::spawn_blocking(work)).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(panicked)) => Err(StepError::ours(&panicked)),
        Err(_) => {
            Err(StepError::Broken(vec![format!("`{path}` did not answer within {} s.", PATIENCE.as_secs())]))
        }
    }
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    // A wrong volume may hold anything; nothing of ours is longer.
    File::open(path)?.take(4096).read_to_string(&mut text)?;
    Ok(text)
}

fn compare(pod: &PodSpec, path: &str, expected: &str, read: io::Result<String>) -> Result {
    match read {
        Ok(text) if text == expected => Ok(()),
        Ok(text) => Err(StepError::Broken(vec![format!(
            "`{path}` in `{}` should hold {expected:?}, and holds {text:?}.",
            pod.name
        )])),
        Err(error) => Err(broken(format!("`{path}` cannot be read in `{}`", pod.name), &error)),
    }
}

fn broken(what: String, error: &io::Error) -> StepError {
    StepError::Broken(vec![super::sentence(&what), error.to_string()])
}
