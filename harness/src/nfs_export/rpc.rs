//! The part of `rpcbind` and `mountd` that a client of NFS version 3 needs: the port and the handle.
//!
//! ONC RPC over TCP: each message is one record with its length before it, all numbers are big-endian words.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use super::{NfsError, nfsd};

const RPCBIND: u32 = 100_000;
const MOUNT: u32 = 100_005;
const RPCBIND_PORT: u16 = 111;
const MOUNT_PORT: u16 = 20_048;
const NFS_PORT: u16 = 2049;

/// Larger than any question of these two protocols.
const LONGEST: usize = 64 << 10;

/// The most bytes of a handle of NFS version 3.
const HANDLE_BYTES: u32 = 64;

/// `MNT3ERR_ACCES`.
const MAY_NOT: u32 = 13;

/// A server that answers one of the two, until it is dropped.
#[derive(Debug)]
pub(super) struct Stub {
    port: u16,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// A call, reduced to the fields that are read here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Question {
    id: u32,
    program: u32,
    version: u32,
    procedure: u32,
    /// The first word of the arguments, which is the program asked for where a port is.
    first: u32,
}

#[derive(Debug, Clone)]
struct Exported {
    client: &'static str,
    directory: PathBuf,
}

impl Stub {
    pub(super) fn rpcbind() -> Result<Self, NfsError> {
        Self::start(RPCBIND_PORT, None)
    }

    pub(super) fn mountd(client: &'static str, directory: &Path) -> Result<Self, NfsError> {
        Self::start(MOUNT_PORT, Some(Exported { client, directory: directory.to_owned() }))
    }

    fn start(port: u16, exported: Option<Exported>) -> Result<Self, NfsError> {
        let listener =
            TcpListener::bind(("127.0.0.1", port)).map_err(|source| NfsError::Port { port, source })?;
        let over = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&over);
        let thread = thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if seen.load(Ordering::Relaxed) {
                    return;
                }
                let exported = exported.clone();
                // Ends with the connection, which its client closes.
                thread::spawn(move || drop(serve(client, exported.as_ref())));
            }
        });
        Ok(Self { port, over, thread: Some(thread) })
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        // Wakes it, so that it looks.
        drop(TcpStream::connect(("127.0.0.1", self.port)));
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

fn serve(mut client: TcpStream, exported: Option<&Exported>) -> io::Result<()> {
    loop {
        let mut head = [0; 4];
        client.read_exact(&mut head)?;
        // The highest bit marks the last part of a record; no request is long enough for a second part.
        let length = (u32::from_be_bytes(head) & 0x7fff_ffff) as usize;
        if length > LONGEST {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut record = vec![0; length];
        client.read_exact(&mut record)?;
        let Some(question) = Question::parse(&record) else { return Err(io::ErrorKind::InvalidData.into()) };
        let answer = answer(question, exported);
        let mut out = (answer.len() as u32 | 0x8000_0000).to_be_bytes().to_vec();
        out.extend(answer);
        client.write_all(&out)?;
    }
}

impl Question {
    fn parse(record: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u32::from_be_bytes(record.get(at..at + 4)?.try_into().ok()?));
        // Credentials and verifier: a kind, a length and as many bytes, each.
        let mut at = 24;
        for _ in 0..2 {
            let length = usize::try_from(word(at + 4)?).ok()?;
            at = at.checked_add(8 + length.next_multiple_of(4))?;
        }
        Some(Self {
            id: word(0)?,
            program: word(12)?,
            version: word(16)?,
            procedure: word(20)?,
            first: word(at).unwrap_or(0),
        })
    }
}

fn answer(question: Question, exported: Option<&Exported>) -> Vec<u8> {
    // A reply, accepted, without a verifier, successful.
    let mut answer = words(&[question.id, 1, 0, 0, 0, 0]);
    let port = if question.first == MOUNT { MOUNT_PORT } else { NFS_PORT };
    match (question.program, question.version, question.procedure) {
        (_, _, 0) => {}
        (RPCBIND, 2, 3) => answer.extend(words(&[u32::from(port)])),
        (RPCBIND, _, 3) => answer.extend(text(&format!("127.0.0.1.{}.{}", port >> 8, port & 0xff))),
        // Registered, or taken back, as the kernel asks.
        (RPCBIND, ..) => answer.extend(words(&[1])),
        (MOUNT, _, 1) => match exported.map(handle) {
            Some(Ok(handle)) => {
                answer.extend(words(&[0, handle.len() as u32]));
                answer.extend(&handle);
                answer.resize(answer.len().next_multiple_of(4), 0);
                // One authentication flavour: AUTH_UNIX.
                answer.extend(words(&[1, 1]));
            }
            _ => answer.extend(words(&[MAY_NOT])),
        },
        (MOUNT, ..) => {}
        // There is no such program.
        _ => answer = words(&[question.id, 1, 0, 0, 0, 1]),
    }
    answer
}

/// The handle of the export's root: the kernel makes it.
fn handle(exported: &Exported) -> io::Result<Vec<u8>> {
    let mut file = std::fs::File::options().read(true).write(true).open(nfsd("filehandle"))?;
    let directory = exported.directory.display();
    file.write_all(format!("{} {directory} {HANDLE_BYTES}\n", exported.client).as_bytes())?;
    let mut said = String::new();
    file.read_to_string(&mut said)?;
    bytes(said.trim().trim_start_matches("\\x")).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn bytes(hex: &str) -> Option<Vec<u8>> {
    let pairs = (0..hex.len()).step_by(2);
    pairs.map(|at| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok()).collect()
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn text(text: &str) -> Vec<u8> {
    let mut out = words(&[text.len() as u32]);
    out.extend(text.as_bytes());
    out.resize(out.len().next_multiple_of(4), 0);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(program: u32, version: u32, procedure: u32, first: u32) -> Question {
        Question { id: 7, program, version, procedure, first }
    }

    #[test]
    fn a_question_is_read_behind_its_credentials() {
        let mut record = words(&[7, 0, 2, RPCBIND, 2, 3]);
        // AUTH_UNIX with five bytes, which take eight, then an empty verifier.
        record.extend(words(&[1, 5, 0, 0, 0, 0, MOUNT]));
        assert_eq!(Question::parse(&record), Some(question(RPCBIND, 2, 3, MOUNT)));
        assert_eq!(Question::parse(&record[..20]), None);
    }

    #[test]
    fn ports_are_answered_in_both_versions() {
        let tail = |question| answer(question, None)[24..].to_vec();
        assert_eq!(tail(question(RPCBIND, 2, 3, MOUNT)), words(&[20_048]));
        assert_eq!(tail(question(RPCBIND, 4, 3, 100_003)), text("127.0.0.1.8.1"));
        assert_eq!(tail(question(RPCBIND, 4, 1, 100_003)), words(&[1]));
    }

    #[test]
    fn unexported_path_has_no_handle() {
        assert_eq!(answer(question(MOUNT, 3, 1, 0), None)[24..], words(&[MAY_NOT]));
    }
}
