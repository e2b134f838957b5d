//! Containers of pods: started with the node's configuration, asked for their view, and ended before their volumes are
//! unmounted.

use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;

use api::VolumeSource;
use harness::container::{Container, ContainerError};
use harness::guard::Guard;
use harness::node::Wanted;
use nix::errno::Errno;
use tokio::sync::Mutex;

use super::spec::CONTAINER;
use super::{Bed, MountSpec, PodSpec, Result, StepError};
use crate::failure::chain;

/// A running container, as cases and the scene share it. Empty once it has ended.
pub(crate) type Running = Rc<Mutex<Option<Container>>>;

/// The container of one pod.
#[derive(Debug, Default)]
pub(super) struct Started {
    running: Running,
    attempts: Cell<u32>,
}

impl Bed {
    /// Starts the container of a pod that has its volumes. Ends a running one first, as a restart does.
    pub(crate) async fn start_container(&self, pod: &str) -> Result<Running> {
        let (running, attempt) = {
            let mut containers = self.containers.borrow_mut();
            let started = containers.entry(pod.to_owned()).or_default();
            (Rc::clone(&started.running), started.attempts.replace(started.attempts.get() + 1))
        };
        end(&running).await?;
        let rootfs = harness::Layout::standard().state().join("containers").join(pod);
        std::fs::create_dir_all(&rootfs).map_err(|error| StepError::ours(&error))?;
        let (container, log) = (CONTAINER.to_owned(), self.directory.join("container.log"));
        let wanted = Wanted { pod: pod.to_owned(), container, attempt, rootfs };
        let spec = self.node.configure(wanted).await;
        let spec = spec.map_err(|error| StepError::of_node(&error))?;
        let group = self.device_groups.make(&spec);
        let container = Container::start(&spec, &log, group).await.map_err(|error| about(&error))?;
        // Its mounts in Bidirectional volumes are no strays.
        self.journal.with_actors(|actors| actors.harness.insert(container.group()));
        running.lock().await.replace(container);
        Ok(running)
    }

    /// The error when a pod's container cannot be started because its configuration is missing.
    pub(crate) async fn refused_container(&self, pod: &str) -> Result<String> {
        match self.start_container(pod).await {
            Err(StepError::Broken(said)) => Ok(said.join(": ") + "\n"),
            Err(error) => Err(error),
            Ok(_) => Err(StepError::Broken(vec![format!("The container of `{pod}` starts.")])),
        }
    }

    /// Ends the container of a pod, if one runs.
    pub(super) async fn end_container(&self, pod: &str) -> Result {
        let started = self.containers.borrow_mut().remove(pod);
        match started {
            Some(started) => end(&started.running).await,
            None => Ok(()),
        }
    }

    /// Everything it sees of its volumes, in the names of a story.
    pub(crate) async fn view(&self, running: &Running, pod: &PodSpec) -> Result<String> {
        let mut running = running.lock().await;
        let view = alive(&mut running)?.look().await.map_err(|error| about(&error))?;
        let volumes = self.made.volumes.borrow();
        let inline = |mount: &MountSpec| matches!(mount.source, Some(VolumeSource::Csi(_)));
        let drivers = pod.mounts.iter().filter(|mount| inline(mount) || volumes.contains_key(&mount.volume));
        let drivers: Vec<&Path> = drivers.map(|mount| Path::new(&mount.mount.path)).collect();
        Ok(view.to_text(self.journal.symbols(), &drivers))
    }

    /// uid, groups, hostname and environment of the container.
    pub(crate) async fn identity(&self, running: &Running) -> Result<String> {
        let mut running = running.lock().await;
        alive(&mut running)?.identity().await.map_err(|error| about(&error))
    }

    /// Writes a file from inside.
    pub(crate) async fn write_inside(&self, running: &Running, path: &str, text: &str) -> Result {
        let mut running = running.lock().await;
        alive(&mut running)?.write(Path::new(path), text).await.map_err(|error| about(&error))
    }

    /// Reads a file from inside and compares it.
    pub(crate) async fn read_inside(&self, running: &Running, path: &str, text: &str) -> Result {
        let mut running = running.lock().await;
        let read = alive(&mut running)?.read(Path::new(path)).await.map_err(|error| about(&error))?;
        if read == text {
            return Ok(());
        }
        let said = format!("`{path}` should hold {text:?} in the container, and holds {read:?}.");
        Err(StepError::Broken(vec![said]))
    }

    /// Tries to write a file from inside, and is refused for one of these reasons.
    pub(crate) async fn refused_inside(&self, running: &Running, path: &str, reasons: &[&str]) -> Result {
        let mut running = running.lock().await;
        let written = alive(&mut running)?.write(Path::new(path), "never").await;
        refused(written, reasons, &format!("`{path}` could be written in the container."))
    }

    /// Tries to mount inside, and is refused for that reason.
    pub(crate) async fn mount_refused_inside(&self, running: &Running, path: &str, reason: &str) -> Result {
        let mut running = running.lock().await;
        let mounted = alive(&mut running)?.mount(Path::new(path)).await;
        refused(mounted, &[reason], &format!("`{path}` could be mounted on in the container."))
    }

    /// Reads files together, again and again until they hold `last`; each must have been of one generation. Says
    /// how many generations were seen.
    pub(crate) async fn follow_inside(
        &self,
        running: &Running,
        directory: &str,
        names: &[&str],
        last: &str,
    ) -> Result {
        let mut running = running.lock().await;
        let read = alive(&mut running)?.follow(Path::new(directory), names, last).await;
        let read = read.map_err(|error| about(&error))?;
        let wrong = mixed_or_unseen(&read, names, directory);
        wrong.map_or(Ok(()), |wrong| Err(StepError::Broken(vec![wrong])))
    }

    /// Gives a file another name from inside.
    pub(crate) async fn rename_inside(&self, running: &Running, from: &str, to: &str) -> Result {
        let mut running = running.lock().await;
        let renamed = alive(&mut running)?.rename(Path::new(from), Path::new(to)).await;
        renamed.map_err(|error| about(&error))
    }

    /// Makes a node for a disk of the machine inside, and opens it; with a reason, is refused for that.
    pub(crate) async fn open_node_inside(
        &self,
        running: &Running,
        disk: &Path,
        reason: Option<&str>,
    ) -> Result {
        use std::os::unix::fs::MetadataExt;
        let device = std::fs::metadata(disk).map_err(|error| StepError::ours(&error))?.rdev();
        let number = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let (major, minor) = (nix::sys::stat::major(device), nix::sys::stat::minor(device));
        let mut running = running.lock().await;
        let opened = alive(&mut running)?.open_node(number(major), number(minor)).await;
        match reason {
            Some(reason) => {
                refused(opened, &[reason], "A disk that is not the pod's could be opened in the container.")
            }
            None => opened.map_err(|error| about(&error)),
        }
    }

    /// Mounts an empty file system inside.
    pub(crate) async fn mount_inside(&self, running: &Running, path: &str) -> Result {
        let mut running = running.lock().await;
        alive(&mut running)?.mount(Path::new(path)).await.map_err(|error| about(&error))
    }

    pub(crate) async fn unmount_inside(&self, running: &Running, path: &str) -> Result {
        let mut running = running.lock().await;
        alive(&mut running)?.unmount(Path::new(path)).await.map_err(|error| about(&error))
    }
}

fn refused(done: std::result::Result<(), ContainerError>, reasons: &[&str], otherwise: &str) -> Result {
    let word = |source: &std::io::Error| Some(format!("{:?}", Errno::from_raw(source.raw_os_error()?)));
    match done {
        Err(ContainerError::Refused { source, .. })
            if word(&source).is_some_and(|word| reasons.contains(&word.as_str())) =>
        {
            Ok(())
        }
        Err(error @ ContainerError::Refused { .. }) => {
            let expected = format!("It should be refused with {}.", reasons.join(" or "));
            Err(StepError::Broken(chain(&error).into_iter().chain([expected]).collect()))
        }
        Err(error) => Err(about(&error)),
        Ok(()) => Err(StepError::Broken(vec![otherwise.to_owned()])),
    }
}

async fn end(running: &Running) -> Result {
    match running.lock().await.take() {
        Some(container) => container.close().map_err(|error| StepError::ours(&error)),
        None => Ok(()),
    }
}

fn alive(running: &mut Option<Container>) -> Result<&mut Container> {
    running.as_mut().ok_or_else(|| StepError::Ours(vec!["the container has ended".to_owned()]))
}

/// What is wrong with files that were read together, again and again, while they were replaced: they are of several
/// generations, or none was seen being replaced, so that the reader has shown nothing.
fn mixed_or_unseen(read: &[Vec<String>], names: &[&str], directory: &str) -> Option<String> {
    let mixed = |texts: &&Vec<String>| texts.iter().any(|text| *text != texts[0]);
    if let Some(texts) = read.iter().find(mixed) {
        return Some(format!(
            "The files {names:?} of `{directory}` were read together and are of several generations: {texts:?}."
        ));
    }
    let is_seen_once = read.len() < 2;
    is_seen_once.then(|| {
        format!("The files {names:?} of `{directory}` were replaced, and the reader saw it at no time.")
    })
}

/// An error of the container is about its volumes; one in talking to the container is the harness's.
fn about(error: &ContainerError) -> StepError {
    match error {
        ContainerError::Build { .. } | ContainerError::Refused { .. } => StepError::Broken(chain(error)),
        _ => StepError::ours(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reader_that_sees_one_generation_has_shown_nothing() {
        let read = |generations: &[[&str; 2]]| {
            let read: Vec<Vec<String>> =
                generations.iter().map(|texts| texts.map(str::to_owned).to_vec()).collect();
            mixed_or_unseen(&read, &["a", "b"], "/settings")
        };
        assert_eq!(read(&[["1", "1"], ["2", "2"]]), None);
        assert!(read(&[["2", "2"]]).is_some_and(|wrong| wrong.contains("at no time")));
        assert!(read(&[["1", "1"], ["1", "2"]]).is_some_and(|wrong| wrong.contains("several generations")));
        assert!(read(&[["1", "2"]]).is_some_and(|wrong| wrong.contains("several generations")));
    }

    #[test]
    fn refusal_for_another_reason_says_which_was_expected() {
        let refused_with = |errno: Errno, reasons: &[&str]| {
            let source = std::io::Error::from_raw_os_error(errno as i32);
            let error = ContainerError::Refused { what: "write `/data/other`".to_owned(), source };
            refused(Err(error), reasons, "It could be written.")
        };
        for errno in [Errno::EIO, Errno::EROFS] {
            assert!(refused_with(errno, &["EIO", "EROFS"]).is_ok(), "{errno}");
        }
        let Err(StepError::Broken(said)) = refused_with(Errno::ENOSPC, &["EIO", "EROFS"]) else {
            panic!("a full disk is no dead one");
        };
        assert_eq!(said.last().map(String::as_str), Some("It should be refused with EIO or EROFS."));
    }
}
