//! The container image of a driver: opened once a run, unpacked into a directory that goes with the run, and what it says
//! of its start taken into the manifest.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use driver_image::{Image, ImageError, Limits, Start, UNPACKING};
use harness::manifest::Manifest;
use tokio::sync::{OnceCell, oneshot};

use super::Exit;
use runner::dispatch::Ledger;

/// The image of a run's driver.
#[derive(Debug)]
pub(super) struct DriverImage {
    image: Arc<Image>,
    file: PathBuf,
    /// Its root on this machine, once it was unpacked.
    root: OnceCell<PathBuf>,
}

impl DriverImage {
    /// Opens the image that a manifest names, if it names one.
    pub(super) async fn of(manifest: &Manifest) -> Result<Option<Self>, Exit> {
        let Some(file) = manifest.image.clone() else { return Ok(None) };
        let path = file.clone();
        let opened =
            on_a_thread(move |is_unwanted| Image::open(&path, Limits::default(), is_unwanted)).await?;
        let image = Arc::new(opened.map_err(|error| refused(&error))?);
        Ok(Some(Self { image, file, root: OnceCell::new() }))
    }

    /// A name for its unpacked content.
    pub(super) fn name(&self) -> String {
        format!("image-{UNPACKING}-{}", self.image.id())
    }

    /// Its root on this machine. The first call unpacks it, into a directory that the janitor removes.
    pub(super) async fn root(&self, ledger: &Ledger) -> Result<&Path, Exit> {
        let unpacked = self.root.get_or_try_init(async || {
            let directory = ledger.image_directory()?;
            let (image, root) = (Arc::clone(&self.image), directory.clone());
            let unpacked = on_a_thread(move |is_unwanted| image.unpack(&root, is_unwanted)).await?;
            unpacked.map(|()| directory).map_err(|error| refused(&error))
        });
        unpacked.await.map(PathBuf::as_path)
    }

    /// Lets a manifest start the driver in the image's root, as the image says where the manifest says nothing.
    pub(super) fn adopt(&self, manifest: &mut Manifest, root: &Path) -> Result<(), Exit> {
        let start = self.image.start();
        manifest.command = command_line(&manifest.command, &start);
        if manifest.command.is_empty() {
            let message = format!("the image `{}` does not say how it is started", self.file.display());
            return Err(Exit::usage(message)
                .hint("name the program: `command` in the manifest, or --driver-cmd '/my-driver --endpoint={endpoint}'"));
        }
        if manifest.starts_controller() {
            manifest.controller_command = command_line(&manifest.controller_command, &start);
        }
        let own = std::mem::take(&mut manifest.root_env);
        manifest.root_env = start.env.into_iter().chain(own).collect();
        manifest.directory = manifest.directory.take().or(start.directory);
        manifest.root = Some(root.to_owned());
        manifest.image = None;
        Ok(())
    }
}

/// Has a driver start in its image on this machine, if its manifest names one.
pub(super) async fn adopt_here(manifest: &mut Manifest, ledger: &Ledger) -> Result<(), Exit> {
    match DriverImage::of(manifest).await? {
        Some(image) => image.adopt(manifest, image.root(ledger).await?),
        None => Ok(()),
    }
}

/// The words of a manifest's command with those of the image. Like the `args` of a pod, words that begin with no program
/// stand in place of the image's arguments.
fn command_line(words: &[String], start: &Start) -> Vec<String> {
    let rest = match words.first() {
        None => &start.arguments,
        Some(first) if first.starts_with(['-', '{']) => words,
        Some(_) => return words.to_owned(),
    };
    start.entrypoint.iter().chain(rest).cloned().collect()
}

fn refused(error: &ImageError) -> Exit {
    let exit = if error.is_of_the_machine() { Exit::environment } else { Exit::usage };
    let source = std::iter::successors(std::error::Error::source(error), |cause| cause.source());
    exit(error.to_string()).details(source.map(ToString::to_string)).maybe_hint(error.hint())
}

/// Does long work beside the runtime. When the caller gives up, the work is asked to end, and its end is awaited: it may
/// write into a directory that is about to be removed.
async fn on_a_thread<T: Send + 'static>(
    work: impl FnOnce(&dyn Fn() -> bool) -> T + Send + 'static,
) -> Result<T, Exit> {
    let unwanted = Arc::new(AtomicBool::new(false));
    let (done, end) = oneshot::channel();
    let thread = std::thread::spawn({
        let unwanted = Arc::clone(&unwanted);
        move || drop(done.send(work(&|| unwanted.load(Ordering::Relaxed))))
    });
    let _work = Work { unwanted, thread: Some(thread) };
    end.await.map_err(|_| Exit::environment("cannot read the image: its reader has ended"))
}

struct Work {
    unwanted: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Work {
    fn drop(&mut self) {
        self.unwanted.store(true, Ordering::Relaxed);
        // A panic was printed already.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn command_is_the_images_unless_the_manifest_names_a_program() {
        let start = Start { entrypoint: words("/driver"), arguments: words("--help"), ..Start::default() };
        for (command, expected) in [
            ("", "/driver --help"),
            ("--endpoint={endpoint}", "/driver --endpoint={endpoint}"),
            ("{endpoint} x", "/driver {endpoint} x"),
            ("/bin/other --x", "/bin/other --x"),
            ("python3 driver.py", "python3 driver.py"),
        ] {
            assert_eq!(command_line(&words(command), &start), words(expected), "{command}");
        }
        assert_eq!(command_line(&[], &Start::default()), Vec::<String>::new());
    }
}
