//! The program under test: built once, run with its output caught.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::{Residue, Results, settle};

/// The directory for temporary files below that of a run: all leftovers in it are of this run.
const TEMPORARY: &str = "tmp";

/// A run of volproof to be started, with a directory of its own.
#[derive(Debug)]
pub struct Volproof {
    command: Command,
    directory: TempDir,
}

/// A run that has ended.
#[derive(Debug)]
pub struct Ended {
    /// The exit code; none if a signal ended it.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    /// Its report directory, and the files put beside it, until this is dropped.
    pub directory: TempDir,
}

impl Volproof {
    /// The program as built from this working tree, without arguments.
    pub fn new() -> Volproof {
        Volproof::at(built())
    }

    /// Another build of it.
    pub fn at(program: &Path) -> Volproof {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let temporary = directory.path().join(TEMPORARY);
        std::fs::create_dir(&temporary).expect("a directory in the temporary directory");
        let mut command = Command::new(program);
        // A test must say the same wherever it runs: no colours, no width, no hints from a caller.
        command
            .current_dir(directory.path())
            .env_remove("VOLPROOF_AGAIN")
            .env_remove("COLUMNS")
            .env_remove("UPDATE_EXPECT")
            .env("NO_COLOR", "1")
            .env("TMPDIR", &temporary)
            // Whether a kernel for guests was fetched matters only to tests that want guests.
            .env("XDG_CACHE_HOME", directory.path().join("cache"))
            .stdin(Stdio::null());
        Volproof { command, directory }
    }

    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Volproof {
        self.command.arg(arg);
        self
    }

    /// Arguments, as one would type them; none may hold a blank.
    pub fn args(mut self, args: &str) -> Volproof {
        self.command.args(args.split_whitespace());
        self
    }

    /// A variable of its environment, which all of its processes inherit.
    pub fn env(mut self, name: &str, value: &str) -> Volproof {
        self.command.env(name, value);
        self
    }

    /// A file in its working directory.
    pub fn file(self, name: &str, content: &str) -> Volproof {
        std::fs::write(self.directory.path().join(name), content).expect("a file in the temporary directory");
        self
    }

    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Runs it to its end.
    pub fn run(mut self) -> Ended {
        let output = self.command.output().expect("volproof can be started");
        Ended::of(output, self.directory)
    }

    /// Starts it in a process group of its own, as a shell does, and does not wait.
    pub fn start(mut self) -> (Child, TempDir) {
        use std::os::unix::process::CommandExt;
        self.command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let child = self.command.spawn().expect("volproof can be started");
        (child, self.directory)
    }
}

impl Default for Volproof {
    fn default() -> Self {
        Self::new()
    }
}

impl Ended {
    /// The result of a run that a test started itself.
    pub fn of(output: Output, directory: TempDir) -> Ended {
        Ended {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            directory,
        }
    }

    /// The results it wrote to `--report out`.
    pub fn results(&self) -> Results {
        Results::read(&self.directory.path().join("out/results.json"))
            .unwrap_or_else(|error| panic!("{error:#}\n{}", self.told()))
    }

    /// The leftovers in its directory for temporary files.
    pub fn temporary_files(&self) -> Vec<String> {
        let entries =
            std::fs::read_dir(self.directory.path().join(TEMPORARY)).into_iter().flatten().flatten();
        entries.map(|entry| format!("file <tmp>/{}", entry.file_name().to_string_lossy())).collect()
    }

    /// Fails if the run has left something, on the machine or in its directory for temporary files.
    #[track_caller]
    pub fn leaves_nothing(&self, before: &Residue, mark: &str, patience: Duration) {
        let mut left = settle(before, mark, patience);
        let deadline = Instant::now() + patience;
        while !self.temporary_files().is_empty() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(50));
        }
        left.extend(self.temporary_files());
        assert_eq!(left, Vec::<String>::new(), "was left behind: {}", self.told());
    }

    /// The output as a snapshot: the exit code, then standard output, then standard error.
    pub fn told(&self) -> String {
        let code = self.code.map_or("a signal".to_owned(), |code| code.to_string());
        let here = self.directory.path().display().to_string();
        let text = format!("exit {code}\n{}{}", block("stdout", &self.stdout), block("stderr", &self.stderr));
        text.replace(&here, "<here>")
    }
}

fn block(name: &str, text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("--- {name}\n{}\n", text.trim_end()) }
}

/// The program, built from this working tree: a test must never judge yesterday's.
pub fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        // `cargo xtask test` has just built the program and passes its path.
        if let Some(program) = std::env::var_os("VOLPROOF_PROGRAM") {
            return PathBuf::from(program);
        }
        let built =
            cargo().args(["build", "--quiet", "--package", "conformance", "--bin", "volproof"]).status();
        assert!(built.expect("cargo can be started").success(), "volproof cannot be built");
        target().join("debug/volproof")
    })
}

/// `cargo xtask` with a command of its own.
pub fn xtask(command: &str) -> Command {
    let mut cargo = cargo();
    cargo.args(["run", "--quiet", "--package", "xtask", "--", command]);
    cargo
}

/// A cargo that works on this working tree.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root()).env("CARGO_TARGET_DIR", target());
    // Cargo's variables about the package of the test would make a nested build see changes.
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if name.starts_with("CARGO_") && !matches!(name.as_str(), "CARGO_HOME" | "CARGO_TARGET_DIR") {
            command.env_remove(name);
        }
    }
    command
}

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ is in the repository").to_path_buf()
}

/// The directory in which cargo built this test and everything else.
pub fn target() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a program");
    // target/debug/deps/<test>
    test.ancestors().nth(3).expect("a test lies in target/debug/deps").to_path_buf()
}
