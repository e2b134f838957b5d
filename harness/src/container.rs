//! A container: the OCI configuration that the volume manager wrote, carried out in namespaces of our own.
//!
//! A process of this binary, executed again with the hidden subcommand `__container`, makes mount, PID, IPC and UTS
//! namespaces, mounts exactly what the configuration lists into an empty root, becomes its user, and then answers
//! questions about its files ([`View`]). There is no image, since only volumes are judged. A container holds copies of the
//! volumes' mounts, as a real one does, so it has to end before the volumes are unmounted. This file starts and kills one
//! process and exchanges messages with it.

mod build;
mod device_group;
pub(crate) mod flags;
mod follow;
mod inside;
mod look;
mod message;
mod program;
mod runc;
mod view;

use std::fs::File;
use std::io;
use std::os::fd::RawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use crate::cgroup;
use crate::guard::{self, CloseError, Guard};
use crate::wait::{Deadline, TimedOut, within};
use message::{Answer, Question};
use runc::Bundle;

pub use device_group::{DeviceGroup, DeviceGroupError, place as device_group};
pub use inside::main;
pub use oci_spec::runtime::Spec;
pub use program::{TERMINAL, bring_programs, take_terminal_back};
pub use runc::groups as runc_groups;
pub use view::View;

/// The hidden subcommand that [`main`] answers.
pub const SUBCOMMAND: &str = "__container";

/// The time limit of an answer. A volume's file system may be dead.
const PATIENCE: Duration = Duration::from_secs(20);

/// The time limit of [`Container::follow`], which ends by itself when the files no longer change.
const FOLLOWING: Duration = Duration::from_secs(600);

/// The time for the kernel to end the processes.
const DYING: Duration = Duration::from_secs(5);

/// Why a container did not start or does not answer.
#[derive(Debug, thiserror::Error)]
pub enum ContainerError {
    /// The process could not be started.
    #[error("cannot start a container's process")]
    Start(#[source] io::Error),
    /// The devices that it may use cannot be limited.
    #[error("cannot limit the devices of a container")]
    Devices(#[from] DeviceGroupError),
    /// The container could not be set up as configured.
    #[error("cannot start the container: {what}")]
    Build {
        /// The step that failed.
        what: String,
        #[source]
        source: io::Error,
    },
    /// The kernel refused a request.
    #[error("cannot {what} in the container")]
    Refused {
        /// The step that failed.
        what: String,
        #[source]
        source: io::Error,
    },
    /// The container has ended.
    #[error("the container has ended")]
    Ended,
    /// The container did not answer in time.
    #[error("the container does not answer")]
    Silent(#[from] TimedOut),
}

#[derive(Debug)]
pub struct Container {
    /// Waits for the first process inside, and ends with it.
    keeper: Child,
    /// The first process inside, as it is numbered out here.
    first: Option<Pid>,
    answers: tokio::io::Lines<BufReader<OwnedReadHalf>>,
    questions: OwnedWriteHalf,
    shown: Vec<PathBuf>,
    open: bool,
    /// The bundle that runc has to delete, if runc started the container.
    bundle: Option<Bundle>,
    /// After all that is in it.
    group: Option<DeviceGroup>,
}

impl Container {
    /// Starts a container. Its root directory must exist; a file system of its own is mounted there, inside. With a
    /// `group` it uses no other devices than its configuration allows.
    ///
    /// # Errors
    /// When the configuration cannot be carried out.
    pub async fn start(spec: &Spec, log: &Path, group: Option<DeviceGroup>) -> Result<Self, ContainerError> {
        Self::start_at(spec, log, group, &[]).await
    }

    /// Starts a container with these open descriptors, on which [`Container::run`] runs programs: [`TERMINAL`].
    ///
    /// # Errors
    /// When the configuration cannot be carried out.
    pub async fn start_at(
        spec: &Spec,
        log: &Path,
        group: Option<DeviceGroup>,
        terminal: &[RawFd],
    ) -> Result<Self, ContainerError> {
        let mut command = Command::new("/proc/self/exe");
        command.arg(SUBCOMMAND);
        let entrance =
            group.as_ref().map(DeviceGroup::entrance).transpose().map_err(ContainerError::Start)?;
        let entrances: Vec<File> = entrance.into_iter().collect();
        let terminal = terminal.to_vec();
        let enter = move || {
            terminal.iter().try_for_each(|descriptor| survive_exec(*descriptor))?;
            cgroup::enter(&entrances)
        };
        // SAFETY: it only makes system calls, on descriptors that are open.
        unsafe { command.pre_exec(enter) };
        let mut container = Self::spawn(command, spec, log)?;
        container.group = group;
        let config = serde_json::to_string(spec).expect("a configuration is a map with text keys");
        container.say(config).await?;
        container.begun().await?;
        Ok(container)
    }

    /// Starts the container with runc. The directory must exist, and becomes runc's.
    ///
    /// # Errors
    /// When runc is not installed, or cannot carry out the configuration: the log says why.
    pub async fn start_with_runc(spec: &Spec, log: &Path, directory: &Path) -> Result<Self, ContainerError> {
        let bundle = Bundle::write(spec, directory)?;
        let mut container = Self::spawn(bundle.command(), spec, log)?;
        container.bundle = Some(bundle);
        container.begun().await?;
        container.first = container.bundle.as_ref().and_then(Bundle::first);
        Ok(container)
    }

    /// Starts the keeper, with the other end of a socket as its standard input.
    fn spawn(mut command: Command, spec: &Spec, log: &Path) -> Result<Self, ContainerError> {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().map_err(ContainerError::Start)?;
        ours.set_nonblocking(true).map_err(ContainerError::Start)?;
        let log = crate::private::append(log).map_err(ContainerError::Start)?;
        let keeper = command
            .process_group(0)
            .stdin(Stdio::from(std::os::fd::OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .map_err(ContainerError::Start)?;
        let (reader, questions) = UnixStream::from_std(ours).map_err(ContainerError::Start)?.into_split();
        let answers = BufReader::new(reader).lines();
        let shown = message::shown(spec);
        Ok(Self { keeper, first: None, answers, questions, shown, open: true, bundle: None, group: None })
    }

    async fn begun(&mut self) -> Result<(), ContainerError> {
        match self.hear("a container starts", PATIENCE).await? {
            Answer::Ready { first } => self.first = Some(Pid::from_raw(first)),
            Answer::Refused { what, errno } => {
                return Err(ContainerError::Build { what, source: io::Error::from_raw_os_error(errno) });
            }
            _ => return Err(ContainerError::Ended),
        }
        Ok(())
    }

    /// Shows nothing but what this configuration has, which is a part of its own.
    pub fn show_only(&mut self, spec: &Spec) {
        self.shown = message::shown(spec);
    }

    /// The process group of the container.
    pub fn group(&self) -> i32 {
        self.keeper.id().cast_signed()
    }

    /// Everything it sees of its volumes and devices.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn look(&mut self) -> Result<View, ContainerError> {
        match self.ask(Question::Look(self.shown.clone())).await? {
            Answer::Seen(sights) => Ok(View::new(sights)),
            _ => Err(ContainerError::Ended),
        }
    }

    /// The beginning of a file or a device.
    ///
    /// # Errors
    /// When it cannot be read, or the container does not answer.
    pub async fn read(&mut self, path: &Path) -> Result<String, ContainerError> {
        match self.ask(Question::Read(path.to_owned())).await? {
            Answer::Text(text) => Ok(text),
            _ => Err(ContainerError::Ended),
        }
    }

    /// Writes a file or to a device, durably.
    ///
    /// # Errors
    /// When it cannot be written, or the container does not answer.
    pub async fn write(&mut self, path: &Path, text: &str) -> Result<(), ContainerError> {
        self.ask(Question::Write(path.to_owned(), text.to_owned())).await.map(drop)
    }

    /// Gives a file another name.
    ///
    /// # Errors
    /// When it may not, or the container does not answer.
    pub async fn rename(&mut self, from: &Path, to: &Path) -> Result<(), ContainerError> {
        self.ask(Question::Rename(from.to_owned(), to.to_owned())).await.map(drop)
    }

    /// Mounts an empty file system inside, on a directory that is made if it is missing.
    ///
    /// # Errors
    /// When it may not, or the container does not answer.
    pub async fn mount(&mut self, path: &Path) -> Result<(), ContainerError> {
        self.ask(Question::Mount(path.to_owned())).await.map(drop)
    }

    /// Unmounts inside.
    ///
    /// # Errors
    /// When it may not, or the container does not answer.
    pub async fn unmount(&mut self, path: &Path) -> Result<(), ContainerError> {
        self.ask(Question::Unmount(path.to_owned())).await.map(drop)
    }

    /// Makes a node for a block device inside, and opens it.
    ///
    /// # Errors
    /// When it may not, or the container does not answer.
    pub async fn open_node(&mut self, major: u32, minor: u32) -> Result<(), ContainerError> {
        self.ask(Question::OpenNode(major, minor)).await.map(drop)
    }

    /// User, groups, host name and environment of the container, one line each.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn identity(&mut self) -> Result<String, ContainerError> {
        match self.ask(Question::Identity).await? {
            Answer::Text(text) => Ok(text),
            _ => Err(ContainerError::Ended),
        }
    }

    /// Runs a program inside to its end, however long that takes, at the terminal that it was started with. Returns the
    /// code that a shell would have for it.
    ///
    /// # Errors
    /// When it cannot be started.
    pub async fn run(&mut self, words: Vec<String>) -> Result<u8, ContainerError> {
        match self.ask_within(Question::Run(words), Duration::MAX).await? {
            Answer::Exited(code) => Ok(code),
            _ => Err(ContainerError::Ended),
        }
    }

    /// Reads files that are replaced all at once, again and again and each time all of one generation, until they
    /// hold `last`: what was read, without repetition.
    ///
    /// # Errors
    /// When they cannot be read, never hold that, or the container does not answer.
    pub async fn follow(
        &mut self,
        directory: &Path,
        names: &[&str],
        last: &str,
    ) -> Result<Vec<Vec<String>>, ContainerError> {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        let question = Question::Follow(directory.to_owned(), names, last.to_owned());
        match self.ask_within(question, FOLLOWING).await? {
            Answer::Read(read) => Ok(read),
            _ => Err(ContainerError::Ended),
        }
    }

    async fn ask(&mut self, question: Question) -> Result<Answer, ContainerError> {
        self.ask_within(question, PATIENCE).await
    }

    async fn ask_within(&mut self, question: Question, limit: Duration) -> Result<Answer, ContainerError> {
        let what = question.to_string();
        self.say(serde_json::to_string(&question).expect("a question is made of plain values")).await?;
        match self.hear(&what, limit).await? {
            Answer::Refused { what, errno } => {
                Err(ContainerError::Refused { what, source: io::Error::from_raw_os_error(errno) })
            }
            answer => Ok(answer),
        }
    }

    async fn say(&mut self, mut line: String) -> Result<(), ContainerError> {
        line.push('\n');
        self.questions.write_all(line.as_bytes()).await.map_err(|_| ContainerError::Ended)
    }

    async fn hear(&mut self, what: &str, limit: Duration) -> Result<Answer, ContainerError> {
        let line = within(what, limit, self.answers.next_line()).await?;
        let line = line.ok().flatten().ok_or(ContainerError::Ended)?;
        serde_json::from_str(&line).map_err(|_| ContainerError::Ended)
    }

    /// Kills the first process: the kernel then ends all others and drops every mount. Waits for the keeper, which ends after
    /// that.
    fn end(&mut self) -> Result<(), CloseError> {
        if !std::mem::replace(&mut self.open, false) {
            return Ok(());
        }
        // A process that is dead already needs no killing.
        let _ = match self.first {
            Some(first) => kill(first, Signal::SIGKILL),
            None => killpg(Pid::from_raw(self.keeper.id().cast_signed()), Signal::SIGKILL),
        };
        let keeper = &mut self.keeper;
        let ended = Deadline::after(DYING).until("a container ends", || match keeper.try_wait() {
            Ok(None) => None,
            Ok(Some(_)) | Err(_) => Some(()),
        });
        if let Some(bundle) = &self.bundle {
            bundle.forget();
        }
        ended?;
        self.group.take().map_or(Ok(()), Guard::close)
    }
}

fn survive_exec(descriptor: RawFd) -> io::Result<()> {
    // SAFETY: it takes any number.
    match unsafe { libc::fcntl(descriptor, libc::F_SETFD, 0) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

impl Guard for Container {
    fn close(mut self) -> Result<(), CloseError> {
        self.end()
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        guard::undo("a container", || self.end());
    }
}
