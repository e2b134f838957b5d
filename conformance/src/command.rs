//! The command line: one file for each subcommand. The doc comments of flags are the texts of `--help`.
//!
//! clap refuses a wrong command line itself, with a suggestion and exit code 2. Every other error is an
//! [`Exit`], which has both the exit code and the message.

use std::ffi::OsString;
use std::fmt;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, Parser, Subcommand, ValueEnum};
use testbed::case::CaseId;
use tokio::runtime::Runtime;

use crate::terminal::{self, note};
use harness::ledger::LedgerError;
use harness::printable::printable;
use runner::dispatch::Ledger;
use runner::exit_code;
use runner::report::wrap::{fit, width_of};

mod check;
mod compare;
mod doctor;
mod enter;
mod explain;
mod image;
mod init;
mod list;
mod look;
mod manual;
mod play;
mod report;
mod run;
mod sabotage;
mod sim;
mod sweep;
mod vm;
mod watch;

pub(crate) use vm::guest;

/// Proves that a storage driver keeps its promises on a real kernel, with no Kubernetes cluster.
#[derive(Debug, Parser)]
#[command(name = "volproof", version, max_term_width = 100, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// When to colour what is printed
    #[arg(long, value_enum, global = true, default_value_t = Colour::Auto)]
    color: Colour,
}

const EXIT_CODES: &str = "\
Exit codes:
  0    all passed or were skipped, and at least one ran
  1    a case failed
  2    the command line or the manifest is wrong
  3    nothing was selected, or nothing could run
  4    the environment could not be prepared
  130  interrupted, and clean";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Colour {
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the cases against a driver
    ///
    /// On this machine a driver is contained against accidents, not malice: what it writes beside {state} and the
    /// node's root is thrown away and reported, and `host_paths` in its manifest opens more. With --socket nothing is
    /// contained; with --tier vm everything is.
    Run(Box<run::Flags>),
    /// Mount the volumes of manifests and print what happens, or play a scenario
    Play(Box<play::Flags>),
    /// Compare two traces, and print where they differ
    Compare(compare::Flags),
    /// Stand between a node and a driver that run already, and judge what passes
    Watch(watch::Flags),
    /// Hold what was recorded, here or beside another node, against every promise
    Check(check::Flags),
    /// Write the reports of finished runs again, as those of one run
    Report(report::Flags),
    /// Show the cases
    List(list::Flags),
    /// Say what a case, a promise or a need is about
    Explain(explain::Flags),
    /// Say what this machine can do and what it lacks
    Doctor(doctor::Flags),
    /// Play random lives of pods against the volume manager on a simulated kernel
    Sim(sim::Flags),
    /// Break each promise of fake-csi in turn, and see whether the cases find it
    Sabotage(sabotage::Flags),
    /// Undo what runs that were killed have left behind
    Sweep(sweep::Flags),
    /// Look around in the sandbox of a case that was kept, or of what is played now
    Enter(enter::Flags),
    /// Write a commented driver.toml
    Init(init::Flags),
    /// Print what a shell needs to complete the words of this program
    Completions {
        /// The shell that is to complete them, such as bash
        shell: clap_complete::Shell,
    },
    /// Print the manual page
    Man,
    /// Fetch kernels for guests, try what this machine can run, or look around in one
    Vm(vm::Flags),
}

/// The error of a command: its message and its exit code.
#[derive(Debug)]
pub(crate) struct Exit {
    code: u8,
    message: String,
    /// Lines below the message: causes, the end of a log.
    details: Vec<String>,
    hint: Option<String>,
}

impl Exit {
    fn new(code: u8, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: vec![], hint: None }
    }

    /// The command line or the manifest is wrong.
    fn usage(message: impl Into<String>) -> Self {
        Self::new(exit_code::USAGE, message)
    }

    /// The environment could not be prepared.
    fn environment(message: impl Into<String>) -> Self {
        Self::new(exit_code::ENVIRONMENT, message)
    }

    /// Whether the command ended because the user interrupted it.
    fn is_interruption(&self) -> bool {
        self.code == exit_code::INTERRUPTED
    }

    fn details(mut self, details: impl IntoIterator<Item = String>) -> Self {
        self.details.extend(details);
        self
    }

    fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The message and its details in one line.
    fn in_a_line(&self) -> String {
        let parts = std::iter::once(&self.message).chain(&self.details).chain(&self.hint);
        parts.map(|part| part.replace('\n', " ")).collect::<Vec<_>>().join("; ")
    }

    fn maybe_hint(mut self, hint: Option<impl Into<String>>) -> Self {
        self.hint = hint.map(Into::into);
        self
    }
}

/// An unforeseen error is one of the environment, such as a report that cannot be written or a missing `/proc`.
impl From<anyhow::Error> for Exit {
    fn from(error: anyhow::Error) -> Self {
        let mut chain = error.chain().map(ToString::to_string);
        Self::environment(chain.next().unwrap_or_default()).details(chain)
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.message)?;
        for detail in &self.details {
            write!(f, "\n  {}", detail.replace('\n', "\n  "))?;
        }
        match &self.hint {
            Some(hint) => write!(f, "\n\n  hint: {}", hint.replace('\n', "\n        ")),
            None => Ok(()),
        }
    }
}

/// A runtime with only this thread.
fn runtime() -> Result<Runtime, Exit> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| Exit::environment("cannot start").details([error.to_string()]))
}

/// Begins a ledger. The error has a hint how to make that possible.
fn open_ledger() -> Result<Ledger, Exit> {
    Ledger::open().map_err(|error| {
        let hint = error.chain().find_map(|cause| cause.downcast_ref::<LedgerError>()?.hint());
        Exit::from(error).maybe_hint(hint)
    })
}

/// Runs work with a ledger, and closes the ledger however the work ends. Resources that the janitor could not undo are an
/// error if the work had none.
fn under_ledger(work: impl AsyncFnOnce(&Ledger) -> Result<u8, Exit>) -> Result<u8, Exit> {
    runtime()?.block_on(async {
        let ledger = open_ledger()?;
        let done = work(&ledger).await;
        let left = ledger.close().await?;
        let code = done?;
        match left.as_slice() {
            [] => Ok(code),
            _ => Err(Exit::environment("something is left behind").details(left)),
        }
    })
}

/// The words with which this program was called, for the line that runs a case again.
#[derive(Debug)]
pub(crate) struct Called {
    /// The whole command line.
    words: Vec<String>,
    /// The words before the flags, as the user typed them.
    start: Option<String>,
}

/// Runs a command line and returns the exit code.
///
/// `called` is the command as the user typed it, if that differs from the arguments.
pub(crate) fn main(arguments: Vec<OsString>, called: Option<String>) -> ExitCode {
    let cli = Cli::try_parse_from(&arguments).unwrap_or_else(|error| refuse(error));
    let words = arguments.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let colour = cli.color.wanted();
    let result = match cli.command {
        Command::Run(flags) => run::run(*flags, colour, &Called { words, start: called }),
        Command::Play(flags) => play::run(&flags, colour),
        Command::Compare(flags) => compare::run(&flags),
        Command::Watch(flags) => watch::run(&flags, colour),
        Command::Check(flags) => check::run(&flags),
        Command::Report(flags) => report::run(&flags),
        Command::List(flags) => list::run(&flags),
        Command::Explain(flags) => explain::run(&flags),
        Command::Doctor(flags) => doctor::run(&flags),
        Command::Sim(flags) => sim::run(&flags),
        Command::Sabotage(flags) => sabotage::run(&flags),
        Command::Sweep(flags) => sweep::run(&flags),
        Command::Enter(flags) => enter::run(&flags),
        Command::Init(flags) => init::run(&flags),
        Command::Completions { shell } => Ok(printed(|out| {
            clap_complete::generate(shell, &mut Cli::command(), "volproof", out);
            Ok(())
        })),
        Command::Man => Ok(printed(|out| manual::write(Cli::command(), out))),
        Command::Vm(flags) => vm::run(&flags),
    };
    let code = result.unwrap_or_else(|exit| print_error(&exit, colour));
    let Some(error) = terminal::failure() else { return ExitCode::from(code) };
    let incomplete = Exit::environment(format!("standard output is incomplete: {error}"));
    let incomplete = print_error(&incomplete, colour);
    ExitCode::from(if code == exit_code::OK { incomplete } else { code })
}

/// Prints the error of a command. Returns the exit code.
fn print_error(exit: &Exit, colour: bool) -> u8 {
    let style = if colour { anstyle::AnsiColor::Red.on_default().bold() } else { anstyle::Style::new() };
    // If standard error is closed, only the exit code reports the error.
    let text = exit.to_string();
    note!("{style}error:{style:#} {}", printable(&text));
    exit.code
}

/// Lines that suggest names, one on each.
fn nearest_lines(names: &[CaseId]) -> impl Iterator<Item = String> {
    let labels = std::iter::once("nearest:").chain(std::iter::repeat("        "));
    names.iter().zip(labels).map(|(name, label)| format!("{label} {name}"))
}

/// The file of a program that is called without a path, as a shell finds it.
fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(program)).find(|file| file.is_file())
}

/// Prints a text.
fn printed(write: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()>) -> u8 {
    let mut text = Vec::new();
    write(&mut text).expect("memory takes what is written");
    terminal::write_text(&text);
    exit_code::OK
}

/// Ends as clap does for a wrong command line, and also suggests a command with two letters swapped.
fn refuse(mut error: clap::Error) -> ! {
    if error.get(ContextKind::SuggestedArg).is_none() {
        // A name that only looks like a flag is rare, and `-- --flag` is a filter that selects nothing.
        error.remove(ContextKind::Suggested);
    }
    let typed = match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(typed)) => typed.clone(),
        _ => end(&error),
    };
    let sorted = |word: &str| {
        let mut letters: Vec<char> = word.chars().collect();
        letters.sort_unstable();
        letters
    };
    let command = Cli::command();
    let named = command.get_subcommands().map(clap::Command::get_name);
    let meant = named.filter(|name| sorted(name) == sorted(&typed)).map(str::to_owned).next();
    if let (None, Some(meant)) = (error.get(ContextKind::SuggestedSubcommand), meant) {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(vec![meant]));
    }
    end(&error)
}

/// Ends as clap does, with its text fitted to the terminal.
fn end(error: &clap::Error) -> ! {
    if error.use_stderr() {
        let text = fit(&error.render().ansi().to_string(), width_of(std::io::stderr()));
        // If standard error is closed, only the exit code reports the error.
        drop(write!(anstream::stderr(), "{text}"));
        std::process::exit(error.exit_code());
    }
    error.exit()
}

impl Colour {
    /// Without the flag, `NO_COLOR` and `CLICOLOR_FORCE` decide.
    fn wanted(self) -> bool {
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Auto if std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty()) => false,
            Self::Auto if std::env::var_os("CLICOLOR_FORCE").is_some_and(|value| value != "0") => true,
            Self::Auto => std::io::stdout().is_terminal(),
        }
    }
}
