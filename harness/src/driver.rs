//! The driver under test: a process group of its own, or a socket that another process serves.
//!
//! Starts it, keeps its output in a file, notices at once when it exits, and asks the first questions.

mod capabilities;
mod interpreter;
mod log;
mod machine;
mod preparation;
mod process;
mod questions;
mod registrar;
pub(crate) mod rooted;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use contracts::event::{Lifecycle, Role};
use nix::unistd::Pid;
use tonic::Status;

pub use capabilities::Capabilities;
pub use log::Lost;
pub use machine::machine_options;
pub use preparation::{Preparation, PreparationError};
pub use process::Exit;
pub use questions::{NOT_ANSWERED, WrongAnswer};
pub use registrar::{Registrar, RegistrarError};

use crate::Layout;
use crate::cgroup::Cgroup;
use crate::journal::Journal;
use crate::load::{self, Late};
use crate::manifest::{Manifest, Placeholders};
use crate::proxy;
use log::Log;
use process::{Process, Start};
use questions::Answers;
use rooted::Program;

/// The parameters of a driver's start.
#[derive(Debug, Clone)]
pub struct DriverOptions {
    pub manifest: Manifest,
    /// The paths of its socket and its state.
    pub layout: Layout,
    /// The node it serves.
    pub node: String,
    /// The file for the driver's output.
    pub log: PathBuf,
    /// The socket of the controller that another driver of the same manifest has started.
    pub other_controller: Option<PathBuf>,
    /// Variables beside those of the manifest, which win.
    pub variables: BTreeMap<String, String>,
    /// Limits for the driver, if any.
    pub cgroup: Option<Arc<Cgroup>>,
}

/// Why a driver cannot be tested.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DriverError {
    /// The program does not exist.
    #[error("cannot start the driver: there is no command `{program}`")]
    NoCommand {
        /// The first word of its command.
        program: String,
    },
    /// The program is there, and what it needs to start is not.
    #[error("cannot start the driver: the interpreter of `{program}`, `{interpreter}`, is not there")]
    NoInterpreter {
        /// The first word of its command.
        program: String,
        interpreter: PathBuf,
    },
    /// The program cannot be executed.
    #[error("cannot start the driver `{program}`")]
    Start {
        /// The first word of its command.
        program: String,
        #[source]
        source: io::Error,
    },
    /// The directory for its root is not a directory.
    #[error("cannot start the driver: its root `{root}` is not a directory")]
    NoRoot {
        /// The path in the manifest.
        root: PathBuf,
    },
    /// The directory it is to run in is not there.
    #[error("cannot start the driver: the directory that it runs in, `{directory}`, is not there")]
    NoDirectory {
        /// The path in the manifest.
        directory: PathBuf,
    },
    /// The driver's state directory or log cannot be created.
    #[error("cannot prepare `{path}` for the driver")]
    Prepare {
        /// The file or directory.
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The driver exited before it served a call.
    #[error("cannot use the driver: it exited at once ({exit})")]
    Exited {
        exit: Exit,
        /// The last lines it printed.
        tail: Vec<String>,
    },
    /// The driver runs, but its socket did not appear.
    #[error("cannot use the driver: `{socket}` did not appear within {within:?}")]
    NoSocket {
        socket: PathBuf,
        within: Duration,
        /// Whether the driver's command has the path of the socket.
        names_socket: bool,
        /// The last lines it printed.
        tail: Vec<String>,
    },
    /// The driver's socket exists, but the driver did not become ready.
    #[error("cannot use the driver: it was not ready within {within:?}")]
    NotReady {
        within: Duration,
        /// The driver's last answer to `Probe`.
        #[source]
        source: Option<Status>,
        /// The last lines it printed.
        tail: Vec<String>,
    },
    /// The driver did not become ready, and the machine was too busy to blame the driver.
    #[error("cannot use the driver: {late}")]
    Overloaded {
        late: Late,
        #[source]
        source: Box<DriverError>,
    },
    /// The driver's name is not the one in the manifest.
    #[error("cannot use the driver: it calls itself `{found}`, but the manifest says `{expected}`")]
    OtherName { expected: String, found: String },
    /// Initial calls failed, or their answers cannot be used.
    #[error("cannot use the driver: {}", list(.wrong))]
    Answers {
        /// The answers, in the order of the questions.
        wrong: Vec<WrongAnswer>,
        /// The last lines it printed.
        tail: Vec<String>,
    },
    /// The driver's socket does not accept connections.
    #[error("cannot connect to the driver")]
    Connect(#[source] Status),
}

fn list(wrong: &[WrongAnswer]) -> String {
    wrong.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

impl DriverError {
    /// The last lines the driver printed, where they may explain the error.
    pub fn tail(&self) -> &[String] {
        match self {
            Self::Exited { tail, .. }
            | Self::NoSocket { tail, .. }
            | Self::NotReady { tail, .. }
            | Self::Answers { tail, .. } => tail,
            Self::Overloaded { source, .. } => source.tail(),
            _ => &[],
        }
    }

    /// Whether the driver's process has ended: one that has not cannot be called lost.
    pub fn has_ended(&self) -> bool {
        matches!(
            self,
            Self::Exited { .. }
                | Self::NoCommand { .. }
                | Self::NoInterpreter { .. }
                | Self::Start { .. }
                | Self::NoRoot { .. }
                | Self::NoDirectory { .. }
        )
    }

    /// Whether the driver answers, and says that it is not ready.
    fn is_answered(&self) -> bool {
        matches!(self, Self::NotReady { source: None, .. })
    }

    /// Whether a driver that could be started before is to blame for it.
    pub fn is_of_the_driver(&self) -> bool {
        matches!(
            self,
            Self::Exited { .. } | Self::NoSocket { .. } | Self::NotReady { .. } | Self::Answers { .. }
        )
    }

    /// An action that may help, as one line.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NoCommand { .. } => Some(
                "a path is relative to the directory of the manifest, with `--driver-cmd` to the current one; \
                 a name without `/` is looked up in PATH",
            ),
            Self::NoInterpreter { .. } => Some(
                "install it, or correct the first line of the script; in a guest, add it to `files` below `[guest]`",
            ),
            Self::NoSocket { names_socket: false, .. } => {
                Some("the command has to name the socket of the driver: add `{socket}` or `{endpoint}` to it")
            }
            Self::NoSocket { names_socket: true, .. } | Self::NotReady { .. } => {
                Some("if the driver only needs longer: `--start-timeout 60s`, or `start` below `[timeouts]`")
            }
            Self::NoDirectory { .. } => Some(
                "`directory` is relative to the directory of the manifest; one below `{state}` has to be made by `prepare`",
            ),
            Self::Start { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => Some(
                "`chmod +x` makes a file a program; a script of an interpreter can also follow it: `python3 driver.py`",
            ),
            Self::Exited { tail, .. }
                if tail.iter().any(|line| line.contains("/tmp/") || line.contains("/run/")) =>
            {
                Some(
                    "`/tmp` and `/run` are the case's own: the driver finds there what its manifest opens, \
                 `host_paths = [\"/tmp/data\"]`",
                )
            }
            Self::Exited { tail, .. }
                if tail.iter().any(|line| line.contains("No such file or directory")) =>
            {
                Some(
                    "a path after the program is relative to the current directory; `directory = \".\"` in the manifest \
                     starts the driver in that of the manifest",
                )
            }
            Self::Exited { tail, .. } if tail.is_empty() => {
                Some("it printed nothing; start its command by hand, with a more detailed log")
            }
            // The load is in the message, and may not be the only reason.
            Self::Overloaded { source, .. } => source.hint(),
            Self::OtherName { .. } => Some("correct `name` in the manifest, or leave it out"),
            _ => None,
        }
    }
}

/// A driver that answers. Dropping it kills its whole process group.
#[derive(Debug)]
pub struct Driver {
    options: DriverOptions,
    journal: Journal,
    socket: PathBuf,
    capabilities: Capabilities,
    wrong_answers: Vec<WrongAnswer>,
    process: Option<Process>,
    /// The process of its controller service, where that is one of its own.
    controller: Option<Process>,
    /// Dropped after the process, so that the log gets its last output.
    log: Option<Log>,
}

impl Driver {
    /// Starts the driver, or connects to the one that runs already, and waits until it is ready.
    ///
    /// # Errors
    /// When it does not start, does not answer, or is another one.
    pub async fn start(options: DriverOptions, journal: Journal) -> Result<Self, DriverError> {
        let socket = options.manifest.socket.clone().unwrap_or_else(|| options.layout.driver_socket());
        let log = match options.manifest.is_running_already() {
            true => None,
            false => {
                let log = Log::open(&options.log);
                let prepare = |source| DriverError::Prepare { path: options.log.clone(), source };
                Some(log.map_err(prepare)?)
            }
        };
        let (capabilities, wrong_answers) = (Capabilities::default(), Vec::new());
        let (process, controller) = (None, None);
        let mut driver =
            Self { options, journal, socket, capabilities, wrong_answers, process, controller, log };
        driver.launch()?;
        driver.become_ready().await?;
        Ok(driver)
    }

    /// The capabilities that it reported when it was started.
    pub fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// Answers to initial calls that break a promise but do not prevent its use.
    pub fn wrong_answers(&self) -> &[WrongAnswer] {
        &self.wrong_answers
    }

    pub fn manifest(&self) -> &Manifest {
        &self.options.manifest
    }

    /// The driver's own socket; the proxy connects to it.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The socket of its controller service, where that is another process.
    pub fn controller_socket(&self) -> Option<PathBuf> {
        let Manifest { controller_socket, .. } = &self.options.manifest;
        let of_other = self.options.other_controller.as_ref().or(controller_socket.as_ref());
        let own = || self.options.starts_controller().then(|| self.options.layout.controller_socket());
        of_other.cloned().or_else(own)
    }

    /// The paths in its sandbox.
    pub fn layout(&self) -> &Layout {
        &self.options.layout
    }

    /// The directory that the driver may use for its state.
    pub fn state(&self) -> PathBuf {
        self.options.layout.driver_state()
    }

    /// Returns when the driver has exited. Never returns for a driver that was started elsewhere.
    pub fn exited(&self) -> impl Future<Output = Exit> + use<> {
        let ended: Vec<_> = self.processes().map(|process| Box::pin(process.exited())).collect();
        async move {
            match ended.is_empty() {
                false => futures::future::select_all(ended).await.0,
                true => std::future::pending().await,
            }
        }
    }

    /// Its first process; `None` if it was started elsewhere.
    pub fn pid(&self) -> Option<Pid> {
        self.process.as_ref().map(Process::pid)
    }

    /// Its processes: one, or that of its controller service and that of its node service.
    pub fn pids(&self) -> Vec<Pid> {
        self.processes().map(Process::pid).collect()
    }

    /// Its exit; `None` while it runs.
    pub fn exit(&self) -> Option<Exit> {
        self.processes().find_map(Process::exit)
    }

    /// Kills its whole process group at once, and returns when it is gone.
    pub async fn kill(&mut self) {
        if self.process.is_some() {
            self.journal.process(Role::Driver, Lifecycle::Kill, None);
            self.processes().for_each(Process::kill);
            // A process that sleeps where no signal reaches it is left to the census.
            let _ = tokio::time::timeout(DYING, self.all_exited()).await;
        }
    }

    /// Sends SIGTERM, and kills the driver if it does not end in time. Returns whether it ended by itself.
    pub async fn terminate(&mut self, within: Duration) -> bool {
        if self.process.is_none() {
            return true;
        }
        self.journal.process(Role::Driver, Lifecycle::Terminate, None);
        self.processes().for_each(Process::terminate);
        if tokio::time::timeout(within, self.all_exited()).await.is_ok() {
            return true;
        }
        self.processes().for_each(Process::kill);
        // If even that fails, the end of the sandbox ends it.
        drop(tokio::time::timeout(DYING, self.all_exited()).await);
        false
    }

    /// Starts it again with the state it has, after it was killed or has exited.
    ///
    /// # Errors
    /// When it does not start, or does not answer.
    pub async fn restart(&mut self) -> Result<(), DriverError> {
        self.kill().await;
        self.launch()?;
        self.become_ready().await
    }

    /// The last lines it printed.
    pub fn log_tail(&self, lines: usize) -> Vec<String> {
        self.log.as_ref().map(|log| log.tail(lines)).unwrap_or_default()
    }

    /// Writes the kept last part of the log to its file, and returns how much of the output is not in it. To be called when
    /// the driver has ended.
    pub fn finish_log(&self) -> Lost {
        let Some(log) = &self.log else { return Lost::default() };
        if let Err(error) = log.finish() {
            tracing::warn!("cannot write the last part of the driver's log; the log ends early: {error}");
        }
        log.lost()
    }

    async fn become_ready(&mut self) -> Result<(), DriverError> {
        let call = self.options.manifest.call_timeout();
        // The first questions need no volume, so their limit is the time to start.
        let first = call.min(self.options.manifest.start_timeout());
        let controller = self.controller_socket();
        let controller = controller.as_deref();
        if let Err(error) = self.start_in_time().await {
            let cause = match &error {
                // Its Probe answers, so that not the machine is what is waited for.
                DriverError::Overloaded { source, .. } if source.is_answered() => source,
                error => error,
            };
            let wrong = match cause {
                DriverError::NotReady { source: None, .. } => {
                    questions::ready_after_all(&self.socket, controller, call).await
                }
                DriverError::NotReady { source: Some(status), within, .. }
                    if proxy::is_unanswered(status) =>
                {
                    questions::answers_after_all(&self.socket, *within).await
                }
                _ => None,
            };
            let tail = self.log_tail(TAIL);
            return Err(wrong.map_or(error, |wrong| DriverError::Answers { wrong: vec![wrong], tail }));
        }
        let Answers { capabilities, wrong } =
            Answers::ask(&self.socket, controller, first).await.map_err(DriverError::Connect)?;
        if wrong.iter().any(|answer| answer.is_fatal) {
            return Err(DriverError::Answers { wrong, tail: self.log_tail(TAIL) });
        }
        if let Some(expected) = self.options.manifest.name.as_ref().filter(|name| **name != capabilities.name)
        {
            if wrong.iter().any(|answer| answer.method == "GetPluginInfo") {
                // The name is none that CSI allows, which the manifest cannot mend.
                return Err(DriverError::Answers { wrong, tail: self.log_tail(TAIL) });
            }
            return Err(DriverError::OtherName { expected: expected.clone(), found: capabilities.name });
        }
        self.capabilities = capabilities;
        self.wrong_answers = wrong;
        Ok(())
    }

    /// Waits for the socket and for the answer that it is ready, by a clock that goes slower on a busy machine.
    async fn start_in_time(&self) -> Result<(), DriverError> {
        let within = self.options.manifest.start_timeout();
        let heard = RefCell::default();
        let ready = async {
            self.wait_for_socket(&self.socket).await?;
            if let Some(controller) = self.controller_socket() {
                self.wait_for_socket(&controller).await?;
            }
            self.wait_for_probe(within, &heard).await
        };
        let late = match load::within(within, ready).await {
            Ok(ready) => return ready,
            Err(late) => late,
        };
        let tail = self.log_tail(TAIL);
        let slow = match heard.into_inner() {
            Some(source) => DriverError::NotReady { within, source, tail },
            None => {
                let (socket, names_socket) = self.missing_socket();
                DriverError::NoSocket { socket, within, names_socket, tail }
            }
        };
        Err(match late.is_cut_short {
            true => DriverError::Overloaded { late, source: Box::new(slow) },
            false => slow,
        })
    }

    /// The socket that nothing listens at, and whether the command of its process names it.
    fn missing_socket(&self) -> (PathBuf, bool) {
        let manifest = &self.options.manifest;
        let missing = self
            .controller_socket()
            .filter(|_| std::os::unix::net::UnixStream::connect(&self.socket).is_ok());
        match missing {
            Some(socket) => (socket, manifest.names_the_socket(&manifest.controller_command)),
            None => (self.socket.clone(), manifest.names_the_socket(&manifest.command)),
        }
    }

    async fn wait_for_socket(&self, socket: &Path) -> Result<(), DriverError> {
        // There is no notification when a socket begins to listen, so it is tried. The first tries come quickly, since
        // a
        // good driver needs a few milliseconds.
        let mut pause = Duration::from_millis(1);
        loop {
            if tokio::net::UnixStream::connect(socket).await.is_ok() {
                return Ok(());
            }
            self.lives()?;
            self.pause(pause).await;
            pause = (pause * 2).min(Duration::from_millis(50));
        }
    }

    /// `heard` is the last answer, or that there was none yet.
    async fn wait_for_probe(
        &self,
        within: Duration,
        heard: &RefCell<Option<Option<Status>>>,
    ) -> Result<(), DriverError> {
        loop {
            heard.borrow_mut().get_or_insert_with(|| Some(proxy::no_answer()));
            match questions::probe(&self.socket, within).await {
                Ok(true) => return Ok(()),
                Ok(false) => drop(heard.replace(Some(None))),
                // The driver is up. The first questions report wrong answers.
                Err(status) if proxy::unreadable(&status).is_some() => return Ok(()),
                Err(status) => drop(heard.replace(Some(Some(status)))),
            }
            self.lives()?;
            self.pause(Duration::from_millis(20)).await;
        }
    }

    fn lives(&self) -> Result<(), DriverError> {
        match self.exit() {
            Some(exit) => Err(DriverError::Exited { exit, tail: self.log_tail(TAIL) }),
            None => Ok(()),
        }
    }

    /// Waits, but not longer than the driver lives.
    async fn pause(&self, pause: Duration) {
        // Both outcomes mean: look again.
        let _ = tokio::time::timeout(pause, self.exited()).await;
    }
}

/// The number of last lines that are shown: they explain most failures, and fit a terminal.
const TAIL: usize = 10;

/// The time for a killed process to end.
const DYING: Duration = Duration::from_secs(5);

impl Driver {
    fn processes(&self) -> impl Iterator<Item = &Process> {
        self.process.iter().chain(&self.controller)
    }

    async fn all_exited(&self) {
        for process in self.processes() {
            process.exited().await;
        }
    }

    /// Starts its processes, if they are ours to start.
    fn launch(&mut self) -> Result<(), DriverError> {
        let Some(log) = &self.log else { return Ok(()) };
        preparation::write_files(&self.options)?;
        let start = |is_controller| launch(&self.options, log, &self.journal, is_controller);
        // Before the node's process, which may look for it.
        let controller = self.options.starts_controller().then(|| start(true)).transpose()?;
        (self.process, self.controller) = (Some(start(false)?), controller);
        Ok(())
    }
}

impl DriverOptions {
    fn starts_controller(&self) -> bool {
        self.manifest.starts_controller() && self.other_controller.is_none()
    }
}

fn launch(
    options: &DriverOptions,
    log: &Log,
    journal: &Journal,
    is_controller: bool,
) -> Result<Process, DriverError> {
    let DriverOptions { manifest, layout, .. } = options;
    let failed = |path: &Path, source| DriverError::Prepare { path: path.to_owned(), source };
    let (command, socket) = match is_controller {
        true => (&manifest.controller_command, layout.controller_socket()),
        false => (&manifest.command, layout.driver_socket()),
    };
    match fs::remove_file(&socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(&socket, error)),
        _ => {}
    }
    let pipe = log.pipe().map_err(|source| failed(&options.log, source))?;
    let placeholders = Placeholders::new(layout, &options.node, is_controller);
    let mut command = placeholders.fill_command(command);
    let directory = manifest.directory.as_ref().map(|path| PathBuf::from(placeholders.fill(path)));
    let mut env = options.variables.clone();
    env.extend(placeholders.fill_values(&manifest.env));
    if let Some(root) = &manifest.root {
        if !root.is_dir() {
            return Err(DriverError::NoRoot { root: root.clone() });
        }
        // `env` wins, and is there already.
        let mut root_env = placeholders.fill_values(&manifest.root_env);
        root_env.retain(|name, _| !manifest.env.contains_key(name));
        let program = Program { command, directory: directory.as_deref(), env: root_env };
        command = rooted::command(root, manifest, layout, program, is_controller);
    }
    let directory = directory.filter(|_| manifest.root.is_none());
    if let Some(directory) = directory.as_ref().filter(|directory| !directory.is_dir()) {
        return Err(DriverError::NoDirectory { directory: directory.clone() });
    }
    let start = Start {
        command: &command,
        env: &env,
        directory,
        log: File::from(pipe),
        limits: options.cgroup.as_deref(),
        is_recorded: !is_controller,
    };
    Process::start(start, journal)
}

#[cfg(test)]
mod tests;
