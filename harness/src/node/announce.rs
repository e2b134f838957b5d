//! The node's end of the effects socket: a `tracing` layer that sends each effect and waits for the journal.
//!
//! The thread that made a change continues only when the change is in the journal. This puts effects in their
//! true order among calls and mounts; notices of the manager that precede the effect are recorded first.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use super::barrier::Barrier;

/// Sends effects to a socket.
#[derive(Debug)]
pub(super) struct Announcer {
    stream: Mutex<UnixStream>,
    notices: Arc<OnceLock<Barrier>>,
}

impl Announcer {
    /// `notices` has the barrier for the manager's notices, once there is a manager.
    pub(super) fn connect(socket: &Path, notices: Arc<OnceLock<Barrier>>) -> io::Result<Self> {
        UnixStream::connect(socket).map(|stream| Self { stream: Mutex::new(stream), notices })
    }

    fn announce(&self, fields: &BTreeMap<String, String>) -> io::Result<()> {
        if let Some(notices) = self.notices.get() {
            notices.pass_blocking();
        }
        let mut line = serde_json::to_vec(fields).map_err(io::Error::from)?;
        line.push(b'\n');
        // The lock is held until the answer: the journal records one announcement at a time.
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        stream.write_all(&line)?;
        stream.read_exact(&mut [0])
    }
}

impl<S: Subscriber> Layer<S> for Announcer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if event.metadata().target() != host::effect::TARGET {
            return;
        }
        let mut fields = Fields::default();
        event.record(&mut fields);
        if self.announce(&fields.0).is_err() {
            // Without a journal nothing that this node does can be judged: the harness has ended or is about
            // to.
            std::process::abort();
        }
    }
}

#[derive(Default)]
struct Fields(BTreeMap<String, String>);

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }
}
