//! The node's end of the socket to the journal: a `tracing` layer that sends each effect and waits until it is recorded.
//!
//! The thread that made a change continues only when the change is in the journal. The manager's notices go the same way
//! without an answer, always before what follows from them: they are sent before a later effect, and before a
//! connection to a driver is made. The journal reads all that was sent before it records anything else. So effects and
//! notices have their true order among calls and mounts.

use std::fmt;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use async_trait::async_trait;
use tokio::sync::mpsc::UnboundedReceiver;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use volume_manager::plugin::csi::socket::SocketDialer;
use volume_manager::{Connection, DialError, Dialer, Notice};

use super::protocol::{EffectFields, Spoken};

/// Sends effects and notices to the journal. Clones are the same socket.
#[derive(Debug, Clone)]
pub(super) struct Announcer(Arc<Mutex<Line>>);

#[derive(Debug)]
struct Line {
    stream: UnixStream,
    /// `None` before there is a manager.
    notices: Option<UnboundedReceiver<Notice>>,
    unsent: Vec<u8>,
}

impl Announcer {
    pub(super) fn connect(socket: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        Ok(Self(Arc::new(Mutex::new(Line { stream, notices: None, unsent: Vec::new() }))))
    }

    /// Sends these notices from now on, as they come or earlier.
    pub(super) async fn forward(self, notices: UnboundedReceiver<Notice>) {
        self.line().notices = Some(notices);
        std::future::poll_fn(|cx| {
            let mut line = self.line();
            let has_ended = line.take_notices(|notices| notices.poll_recv(cx));
            line.send().unwrap_or_else(no_journal);
            if has_ended { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Sends all notices up to now.
    pub(super) fn catch_up(&self) {
        self.line().catch_up().unwrap_or_else(no_journal);
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Line {
    /// Takes notices until `next` has none for now, or for good: then it returns true.
    fn take_notices(
        &mut self,
        mut next: impl FnMut(&mut UnboundedReceiver<Notice>) -> Poll<Option<Notice>>,
    ) -> bool {
        let Some(notices) = &mut self.notices else { return false };
        loop {
            match next(notices) {
                Poll::Ready(Some(notice)) => append(&mut self.unsent, &Spoken::Notice(notice)),
                Poll::Ready(None) => return true,
                Poll::Pending => return false,
            }
        }
    }

    fn catch_up(&mut self) -> io::Result<()> {
        self.take_notices(ready);
        self.send()
    }

    fn send(&mut self) -> io::Result<()> {
        if !self.unsent.is_empty() {
            self.stream.write_all(&self.unsent)?;
            self.unsent.clear();
        }
        Ok(())
    }

    /// Sends an effect behind all notices up to now, and waits until it is recorded.
    fn announce(&mut self, fields: EffectFields) -> io::Result<()> {
        self.take_notices(ready);
        append(&mut self.unsent, &Spoken::Effect(fields));
        self.send()?;
        self.stream.read_exact(&mut [0])
    }
}

/// The next notice, if there is one by now.
fn ready(notices: &mut UnboundedReceiver<Notice>) -> Poll<Option<Notice>> {
    notices.try_recv().map_or(Poll::Pending, |notice| Poll::Ready(Some(notice)))
}

fn append(unsent: &mut Vec<u8>, spoken: &Spoken) {
    serde_json::to_writer(&mut *unsent, spoken).expect("it is made of plain values");
    unsent.push(b'\n');
}

/// Without a journal nothing that this node does can be judged: the harness has ended or is about to.
fn no_journal(_: io::Error) {
    std::process::abort();
}

impl<S: Subscriber> Layer<S> for Announcer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if event.metadata().target() != host::effect::TARGET {
            return;
        }
        let mut fields = Fields::default();
        event.record(&mut fields);
        // The lock is held until the answer: the journal records one effect at a time.
        self.line().announce(fields.0).unwrap_or_else(no_journal);
    }
}

#[derive(Default)]
struct Fields(EffectFields);

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }
}

/// Connects to a driver after all earlier notices are sent.
#[async_trait]
impl Dialer for Announcer {
    async fn dial(&self, endpoint: &Path) -> Result<Connection, DialError> {
        self.catch_up();
        SocketDialer.dial(endpoint).await
    }
}
