//! Serves an API server at a unix socket.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::ApiSource;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

use super::wire::{Answer, Ask, Question, Tell};
use crate::proxy;

/// Why an API server cannot be served.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on `{path}`")]
pub struct ServeError {
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// A served api. Dropping it closes the socket.
#[derive(Debug)]
pub struct Served {
    socket: PathBuf,
    task: AbortHandle,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
        // The socket may be gone with its directory.
        let _ = fs::remove_file(&self.socket);
    }
}

pub(super) fn serve(api: Arc<dyn ApiSource>, socket: &Path) -> Result<Served, ServeError> {
    let listener = proxy::listen(socket).map_err(|source| ServeError { path: socket.to_owned(), source })?;
    let task = tokio::spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            // A caller that is gone before it was accepted needs no answer.
            let Ok((stream, _)) = listener.accept().await else { continue };
            connections.spawn(converse(stream, Arc::clone(&api)));
        }
    });
    Ok(Served { socket: socket.to_owned(), task: task.abort_handle() })
}

/// Answers one connection until it ends. Questions are answered side by side: one may be delayed on purpose.
async fn converse(stream: UnixStream, api: Arc<dyn ApiSource>) {
    let (reader, mut writer) = stream.into_split();
    let (answers, mut outgoing) = mpsc::unbounded_channel::<Tell>();
    let mut work = JoinSet::new();
    work.spawn(async move {
        while let Some(message) = outgoing.recv().await {
            let mut line = serde_json::to_vec(&message).expect("objects are made of maps with text keys");
            line.push(b'\n');
            if writer.write_all(&line).await.is_err() {
                return;
            }
        }
    });
    let mut lines = BufReader::new(reader).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let Ok(ask) = serde_json::from_str::<Ask>(&line) else {
            // The other end is this very binary; a line it did not mean ends the conversation.
            return;
        };
        work.spawn(answer(ask, Arc::clone(&api), answers.clone()));
    }
}

async fn answer(ask: Ask, api: Arc<dyn ApiSource>, answers: mpsc::UnboundedSender<Tell>) {
    let id = ask.id;
    // The receiver is gone once the connection is.
    let send = |answer| _ = answers.send(Tell { id, answer });
    let answer = match ask.question {
        Question::Get(key) => api.get(&key).await.map(Answer::Object),
        Question::List(kind) => api.list(kind).await.map(Answer::Objects),
        Question::Create(object) => api.create(object).await.map(Answer::Object),
        Question::Update(object) => api.update(object).await.map(Answer::Object),
        Question::Patch(patch) => api.patch(patch).await.map(Answer::Object),
        Question::Delete(key) => api.delete(&key).await.map(|()| Answer::Done),
        Question::Token(request) => api.request_token(&request).await.map(Answer::Token),
        Question::Watch(kind) => match api.watch(kind).await {
            Err(error) => Err(error),
            Ok(mut watch) => {
                send(Answer::Watching);
                while let Some(change) = watch.recv().await {
                    send(Answer::Change(change));
                }
                Ok(Answer::Ended)
            }
        },
    };
    send(answer.unwrap_or_else(Answer::Failed));
}
