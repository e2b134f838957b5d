//! The journal's end of the socket on which a node announces its effects and notices.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream as StdStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use contracts::event::UnknownWord;
use tokio::io::Interest;
use tokio::net::{UnixListener, UnixStream};

use super::notice;
use super::protocol::{EffectFields, Spoken};
use crate::journal::{Announced, Announcement, Announcements, Journal};
use crate::symbols::Symbols;

/// The number of effects until the node is killed; zero for never.
pub(super) type Doom = Arc<AtomicU64>;

/// Waits for the node and lets the journal hear it.
pub(super) async fn serve(listener: UnixListener, journal: Journal, doom: Doom) {
    loop {
        // The node may end before its connection is accepted.
        let Ok((stream, _)) = listener.accept().await else { continue };
        let Ok(read) = stream.as_fd().try_clone_to_owned() else { continue };
        let (symbols, doom) = (journal.symbols().clone(), Arc::clone(&doom));
        let socket = Socket { stream: read.into(), symbols, doom, unread: Vec::new(), is_open: true };
        journal.listen_to(Box::new(socket));
        follow(&stream, &journal).await;
    }
}

/// Records what a node says as it comes.
async fn follow(stream: &UnixStream, journal: &Journal) {
    let mut may_say_more = true;
    while may_say_more && stream.readable().await.is_ok() {
        // The journal reads from a copy of the stream, and reads all. WouldBlock makes the stream wait for more.
        let _ = stream.try_io(Interest::READABLE, || {
            may_say_more = journal.catch_up();
            io::Result::<()>::Err(ErrorKind::WouldBlock.into())
        });
    }
}

#[derive(Debug)]
struct Socket {
    /// It does not wait, as the stream that it is a copy of.
    stream: StdStream,
    symbols: Symbols,
    doom: Doom,
    /// The bytes after the last whole line.
    unread: Vec<u8>,
    is_open: bool,
}

impl Announcements for Socket {
    fn drain(&mut self) -> Vec<Announced> {
        self.read();
        let mut announced = Vec::new();
        let Some(end) = self.unread.iter().rposition(|byte| *byte == b'\n') else { return announced };
        for line in self.unread[..end].split(|byte| *byte == b'\n') {
            // The other end is this binary; a line that cannot be parsed ends the connection.
            match announced_by(line, &self.symbols) {
                Ok(found) => announced.extend(found),
                Err(_) => {
                    self.is_open = false;
                    break;
                }
            }
        }
        self.unread.drain(..=end);
        announced
    }

    fn let_go_on(&mut self) -> bool {
        let left = self.doom.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        if left == Ok(1) {
            return false;
        }
        // The node waits for this byte alone, so that there is room for it.
        self.is_open &= self.stream.write_all(b"k").is_ok();
        true
    }

    fn is_open(&self) -> bool {
        self.is_open
    }
}

impl Socket {
    fn read(&mut self) {
        let mut bytes = [0; 16 << 10];
        while self.is_open {
            match self.stream.read(&mut bytes) {
                Ok(0) => self.is_open = false,
                Ok(read) => {
                    self.unread.extend_from_slice(&bytes[..read]);
                    if read < bytes.len() {
                        return;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => self.is_open = false,
            }
        }
    }
}

fn announced_by(line: &[u8], symbols: &Symbols) -> Result<Option<Announced>, serde_json::Error> {
    Ok(match serde_json::from_slice(line)? {
        Spoken::Notice(notice) => notice::event(symbols, notice).map(Announced::Notice),
        Spoken::Effect(fields) => {
            Some(Announced::Effect(announcement(fields).map_err(serde::de::Error::custom)?))
        }
    })
}

fn announcement(mut fields: EffectFields) -> Result<Announcement, UnknownWord> {
    let mut take = |key: &str| fields.remove(key);
    let effect = take("effect").unwrap_or_default().parse()?;
    let path = take("path").unwrap_or_default().into();
    let source = take("source").map(Into::into);
    Ok(Announcement { effect, path, source, fields })
}
