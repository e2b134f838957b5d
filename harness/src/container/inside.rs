//! The container's own processes: a keeper outside that only waits, and the first process inside, which
//! builds its world and then answers questions until its socket is closed.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::process::ExitCode;

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, fork, getegid, geteuid, getgroups, gethostname};
use oci_spec::runtime::Spec;

use super::build::{self, BuildError};
use super::follow;
use super::look;
use super::message::{Answer, Question};
use super::program;
use super::runc;

/// The process `__container`. Its standard input is a socket: the configuration comes first, then questions. Where
/// runc has made the container it is the process inside, and there are only questions.
pub fn main() -> ExitCode {
    let answers_only = std::env::args().nth(2).is_some_and(|word| word == runc::ANSWER);
    match if answers_only { Socket::of(runc::SOCKET).and_then(|socket| serve(socket, 0)) } else { run() } {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> io::Result<()> {
    // The first of all: nothing here may outlive the process that started it.
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    let mut socket = Socket::of(libc::STDIN_FILENO)?;
    let Some(config) = socket.hear()? else { return Ok(()) };
    let spec: Spec = serde_json::from_str(&config).map_err(io::Error::other)?;
    // Applies to children only: the first of them is number 1 in there. The mount namespace comes later, and
    // only in the child, so that with the child's death its mounts are gone.
    if let Err(errno) = unshare(CloneFlags::CLONE_NEWPID) {
        return socket.say(&refused("make a PID namespace".to_owned(), errno));
    }
    // SAFETY: this process has one thread.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => {
            drop(socket);
            waitpid(child, None)?;
            Ok(())
        }
        ForkResult::Child => {
            prctl::set_pdeathsig(Signal::SIGKILL)?;
            become_container(&spec, socket)
        }
    }
}

fn become_container(spec: &Spec, mut socket: Socket) -> io::Result<()> {
    // Read while the /proc of outside is still there.
    let first = build::pid_outside()?;
    if let Err(BuildError { what, errno }) = build::build(spec) {
        return socket.say(&refused(what, errno));
    }
    // Becoming another user has taken it back.
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    serve(socket, first)
}

/// Answers until the socket is closed.
fn serve(mut socket: Socket, first: i32) -> io::Result<()> {
    socket.say(&Answer::Ready { first })?;
    while let Some(line) = socket.hear()? {
        let question: Question = serde_json::from_str(&line).map_err(io::Error::other)?;
        let what = question.to_string();
        let answer = answer(question).unwrap_or_else(|error| {
            refused(what, Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)))
        });
        socket.say(&answer)?;
    }
    Ok(())
}

fn refused(what: String, errno: Errno) -> Answer {
    Answer::Refused { what, errno: errno as i32 }
}

fn answer(question: Question) -> io::Result<Answer> {
    match question {
        Question::Look(paths) => look::look(&paths).map(Answer::Seen),
        Question::Read(path) => read(&path).map(Answer::Text),
        Question::Write(path, text) => {
            let mut file = File::options().create(true).write(true).truncate(true).open(path)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            Ok(Answer::Done)
        }
        Question::Rename(from, to) => {
            std::fs::rename(from, to)?;
            Ok(Answer::Done)
        }
        Question::Mount(path) => {
            std::fs::create_dir_all(&path)?;
            mount(Some("volproof"), &path, Some("tmpfs"), MsFlags::empty(), Some("size=64k"))?;
            Ok(Answer::Done)
        }
        Question::Unmount(path) => {
            umount2(&path, MntFlags::empty())?;
            Ok(Answer::Done)
        }
        Question::OpenNode(major, minor) => {
            open_node(major, minor)?;
            Ok(Answer::Done)
        }
        Question::Identity => identity().map(Answer::Text),
        Question::Follow(path, names, last) => follow::follow(&path, &names, &last).map(Answer::Read),
        Question::Run(words) => program::run(&words).map(Answer::Exited),
    }
}

/// Makes a node for a device, which needs the capability, and opens it.
fn open_node(major: u32, minor: u32) -> io::Result<()> {
    use rustix::fs::{CWD, FileType, Mode, makedev};
    let node = Path::new("/dev/volproof-node");
    let made =
        rustix::fs::mknodat(CWD, node, FileType::BlockDevice, Mode::from(0o600), makedev(major, minor));
    made?;
    let opened = File::open(node);
    std::fs::remove_file(node)?;
    opened.map(drop)
}

/// Text up to the first zero: what follows it on a device was never written.
fn read(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(4096).read_to_end(&mut bytes)?;
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    Ok(String::from_utf8_lossy(&bytes[..end]).into_owned())
}

fn identity() -> io::Result<String> {
    let mut groups: Vec<u32> = getgroups()?.into_iter().map(nix::unistd::Gid::as_raw).collect();
    groups.sort_unstable();
    let groups: Vec<String> = groups.iter().map(u32::to_string).collect();
    let mut text = format!(
        "user   {}:{}\ngroups {}\nhost   {}\n",
        geteuid(),
        getegid(),
        groups.join(" "),
        gethostname()?.to_string_lossy()
    );
    let mut environment: Vec<(String, String)> = std::env::vars().collect();
    environment.sort();
    for (name, value) in environment {
        text += &format!("env    {name}={value}\n");
    }
    Ok(text.lines().map(|line| format!("{}\n", line.trim_end())).collect())
}

/// The socket that this process was started with.
struct Socket {
    reader: BufReader<File>,
    writer: File,
}

impl Socket {
    fn of(number: i32) -> io::Result<Self> {
        // SAFETY: the parent of this process has opened it, and nothing here closes it.
        let socket = unsafe { BorrowedFd::borrow_raw(number) };
        let writer = File::from(socket.try_clone_to_owned()?);
        Ok(Self { reader: BufReader::new(writer.try_clone()?), writer })
    }

    fn hear(&mut self) -> io::Result<Option<String>> {
        let mut line = String::new();
        let length = self.reader.read_line(&mut line)?;
        Ok((length > 0).then_some(line))
    }

    fn say(&mut self, answer: &Answer) -> io::Result<()> {
        let mut line = serde_json::to_vec(answer).expect("an answer is made of plain values");
        line.push(b'\n');
        self.writer.write_all(&line)
    }
}
