//! The serving process: mounts the mirror, takes orders, ends when it is unmounted.

use std::io::{self, BufReader};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use fuser::{Config, INodeNo, MountOption, SessionACL};

use super::FaultFsOptions;
use super::control::{Answer, Order, Status, receive, send};
use super::held::Held;
use super::inodes::Inodes;
use super::rule::RuleBook;
use super::server::{Log, Mirror, Shared};
use super::write_log::{LogWriter, Record};

/// Calls that are served at the same time; one that is delayed holds one of these up.
const THREADS: usize = 4;

/// Answers the hidden subcommand; `settings` are [`FaultFsOptions`] as JSON.
pub fn main(settings: &str) -> ExitCode {
    let _ = nix::sys::prctl::set_name(c"faultfs");
    match serde_json::from_str(settings).map_err(io::Error::from).and_then(|options| serve(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(options: &FaultFsOptions) -> io::Result<()> {
    let shared = Arc::new(Shared {
        inodes: Inodes::new(&options.backing)?,
        rules: Mutex::new(RuleBook::new(options.seed)),
        held: Held::default(),
        calls: Mutex::default(),
        log: Mutex::default(),
    });
    let mut config = Config::default();
    config.mount_options = vec![MountOption::FSName("faultfs".to_owned()), MountOption::DefaultPermissions];
    config.acl = SessionACL::All;
    config.n_threads = Some(THREADS);
    config.clone_fd = true;
    let session = fuser::spawn_mount(Mirror::new(Arc::clone(&shared)), &options.target, &config)?;
    // Bound only now: a client that can give an order finds the file system mounted.
    let listener = UnixListener::bind(&options.control)?;
    let backing = options.backing.clone();
    // Ends with the process.
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // An order that is cut off is ignored.
            let _ = take_order(&shared, &backing, stream);
        }
    });
    session.join()
}

fn take_order(shared: &Shared, backing: &Path, mut stream: UnixStream) -> io::Result<()> {
    let order: Order = receive(&mut BufReader::new(&stream))?;
    let answer =
        obey(shared, backing, order).unwrap_or_else(|error| Answer::Refused { why: error.to_string() });
    send(&mut stream, &answer)
}

fn obey(shared: &Shared, backing: &Path, order: Order) -> io::Result<Answer> {
    match order {
        Order::Arm { rule } => return Ok(Answer::Armed { id: locked(&shared.rules).arm(rule) }),
        Order::Disarm { id } if !locked(&shared.rules).disarm(id) => {
            return Err(io::Error::other("there is no such rule"));
        }
        Order::Disarm { .. } => {}
        Order::Clear => locked(&shared.rules).clear(),
        Order::Release => shared.held.release(),
        Order::Status => return Ok(Answer::Status { status: status(shared) }),
        Order::Log { path, to } => {
            // The lock first: no write may come between the copy and the first line.
            let mut log = locked(&shared.log);
            let file = std::fs::File::open(backing.join(path))?;
            let inode = INodeNo(file.metadata()?.ino());
            *log = Some(Log { inode, writer: LogWriter::start(&file, &to)? });
        }
        Order::Mark { label } => match &mut *locked(&shared.log) {
            Some(log) => log.writer.write(&Record::Mark { label })?,
            None => return Err(io::Error::other("nothing is being written down")),
        },
    }
    Ok(Answer::Done)
}

fn status(shared: &Shared) -> Status {
    Status {
        hanging: shared.held.count(),
        calls: locked(&shared.calls).clone(),
        struck: locked(&shared.rules).struck().collect(),
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
