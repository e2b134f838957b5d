//! The journal's end of the effects socket: looks at the kernel, records, and only then lets the node go on.

use std::collections::BTreeMap;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;

use crate::journal::{Announcement, Journal};

pub(super) async fn serve(listener: UnixListener, journal: Journal) {
    let mut connections = JoinSet::new();
    loop {
        // A node that is gone before it was accepted announces nothing.
        let Ok((stream, _)) = listener.accept().await else { continue };
        connections.spawn(hear(stream, journal.clone()));
    }
}

async fn hear(stream: UnixStream, journal: Journal) {
    let (reader, mut writer) = stream.into_split();
    let mut lines = BufReader::new(reader).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        // The other end is this very binary; a line it did not mean ends the conversation.
        let Ok(fields) = serde_json::from_str::<BTreeMap<String, String>>(&line) else { return };
        journal.effect(announcement(fields));
        if writer.write_all(b"k").await.is_err() {
            return;
        }
    }
}

fn announcement(mut fields: BTreeMap<String, String>) -> Announcement {
    let mut take = |key: &str| fields.remove(key);
    let effect = take("effect").unwrap_or_default();
    let path = take("path").unwrap_or_default().into();
    let source = take("source").map(Into::into);
    Announcement { effect, path, source, fields }
}
