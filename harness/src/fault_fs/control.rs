//! Orders to a fault file system: for each a connection, with a line of JSON in each direction.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::rule::{Operation, Rule, RuleId};

/// The time limit of an answer, which the server gives from memory.
const ANSWER: Duration = Duration::from_secs(10);

/// An order for a fault file system.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Order {
    Arm { rule: Rule },
    Disarm { id: RuleId },
    Clear,
    Release,
    Status,
    Log { path: PathBuf, to: PathBuf },
    Mark { label: String },
}

/// The answer to an order.
///
/// Not internally tagged, unlike [`Order`]: serde then reads no map whose keys are numbers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Answer {
    Done,
    Armed { id: RuleId },
    Status { status: Status },
    Refused { why: String },
}

/// The counters of a fault file system.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The number of calls that hang now.
    pub hanging: usize,
    /// The number of calls of each kind.
    pub calls: BTreeMap<Operation, u64>,
    /// The number of calls that each armed rule has changed.
    pub struck: BTreeMap<RuleId, u64>,
}

/// Why an order was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The fault file system does not listen, or does not answer.
    #[error("cannot send an order to the fault file system at `{socket}`")]
    Io {
        socket: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The fault file system answers, but has not carried out the order.
    #[error("the fault file system has not carried out the order: {0}")]
    Refused(String),
}

/// Gives orders to one fault file system.
#[derive(Debug, Clone)]
pub struct Client {
    socket: PathBuf,
    patience: Duration,
}

impl Client {
    /// A client of the fault file system that listens on this socket.
    pub fn new(socket: &Path) -> Client {
        Client { socket: socket.to_owned(), patience: ANSWER }
    }

    /// The same client with another time limit of an answer.
    pub(super) fn patience(self, patience: Duration) -> Client {
        Client { patience, ..self }
    }

    /// Arms a rule. Rules that were armed before it come first.
    pub fn arm(&self, rule: Rule) -> Result<RuleId, ControlError> {
        match self.ask(&Order::Arm { rule })? {
            Answer::Armed { id } => Ok(id),
            other => Err(unexpected(&other)),
        }
    }

    pub fn disarm(&self, id: RuleId) -> Result<(), ControlError> {
        self.order(&Order::Disarm { id })
    }

    /// Disarms all rules. Calls that hang go on hanging.
    pub fn clear(&self) -> Result<(), ControlError> {
        self.order(&Order::Clear)
    }

    /// Answers every hanging call with EIO.
    pub fn release(&self) -> Result<(), ControlError> {
        self.order(&Order::Release)
    }

    /// Reads the counters.
    pub fn status(&self) -> Result<Status, ControlError> {
        match self.ask(&Order::Status)? {
            Answer::Status { status } => Ok(status),
            other => Err(unexpected(&other)),
        }
    }

    /// Begins a log of the changes of one file, in their order, for [`WriteLog`](super::WriteLog) to read. The log is
    /// written to `to`, and the present content of the file to `to` with `.base`.
    pub fn log(&self, path: &Path, to: &Path) -> Result<(), ControlError> {
        self.order(&Order::Log { path: path.to_owned(), to: to.to_owned() })
    }

    /// Puts a mark into the log: data that the writer was promised before it must be in every later state.
    pub fn mark(&self, label: &str) -> Result<(), ControlError> {
        self.order(&Order::Mark { label: label.to_owned() })
    }

    fn order(&self, order: &Order) -> Result<(), ControlError> {
        match self.ask(order)? {
            Answer::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    fn ask(&self, order: &Order) -> Result<Answer, ControlError> {
        let io = |source| ControlError::Io { socket: self.socket.clone(), source };
        let mut stream = UnixStream::connect(&self.socket).map_err(io)?;
        stream.set_read_timeout(Some(self.patience)).map_err(io)?;
        send(&mut stream, order).map_err(io)?;
        match receive(&mut BufReader::new(&stream)).map_err(io)? {
            Answer::Refused { why } => Err(ControlError::Refused(why)),
            answer => Ok(answer),
        }
    }
}

fn unexpected(answer: &Answer) -> ControlError {
    ControlError::Refused(format!("unexpected answer {answer:?}"))
}

pub(super) fn send(stream: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    stream.write_all(&line)
}

pub(super) fn receive<T: for<'a> Deserialize<'a>>(stream: &mut impl BufRead) -> io::Result<T> {
    let mut line = String::new();
    stream.read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}
