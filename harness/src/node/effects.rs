//! The journal's end of the effects socket: looks at the kernel, records the effect, and only then lets the
//! node continue.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use contracts::event::{Lifecycle, Role, UnknownWord};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;

use crate::journal::{Announcement, Journal};

/// The number of effects until the node is killed; zero for never.
pub(super) type Doom = Arc<AtomicU64>;

pub(super) async fn serve(listener: UnixListener, journal: Journal, doom: Doom) {
    let mut connections = JoinSet::new();
    loop {
        // The node may end before its connection is accepted.
        let Ok((stream, _)) = listener.accept().await else { continue };
        connections.spawn(hear(stream, journal.clone(), Arc::clone(&doom)));
    }
}

async fn hear(stream: UnixStream, journal: Journal, doom: Doom) {
    let (reader, mut writer) = stream.into_split();
    let mut lines = BufReader::new(reader).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        // The other end is this binary; a line that cannot be parsed ends the connection.
        let Ok(fields) = serde_json::from_str::<BTreeMap<String, String>>(&line) else { return };
        let Ok(announcement) = announcement(fields) else { return };
        journal.effect(announcement);
        let left = doom.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        if left == Ok(1) {
            // The effect took place and the node is killed, so it gets no answer.
            return kill(&journal);
        }
        if writer.write_all(b"k").await.is_err() {
            return;
        }
    }
}

fn kill(journal: &Journal) {
    if let Some(node) = journal.with_actors(|actors| actors.node) {
        journal.process(Role::Node, Lifecycle::Kill, None);
        // Fails if no process of the group is left, and then there is nothing to kill.
        let _ = killpg(Pid::from_raw(node), Signal::SIGKILL);
    }
}

fn announcement(mut fields: BTreeMap<String, String>) -> Result<Announcement, UnknownWord> {
    let mut take = |key: &str| fields.remove(key);
    let effect = take("effect").unwrap_or_default().parse()?;
    let path = take("path").unwrap_or_default().into();
    let source = take("source").map(Into::into);
    Ok(Announcement { effect, path, source, fields })
}
