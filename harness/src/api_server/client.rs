//! An API server behind a socket, as the node's process sees it.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::{ApiError, ApiSource, Change, Key, Kind, Object, Patch, Token, TokenRequest, Watch};
use async_trait::async_trait;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedReadHalf;
use tokio::sync::{mpsc, oneshot};

use super::wire::{Answer, Ask, Question, Tell};

/// Why an API server cannot be reached.
#[derive(Debug, thiserror::Error)]
#[error("cannot connect to the API server at `{path}`")]
pub struct ClientError {
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// The other end of [`ApiServer::serve`](super::ApiServer::serve).
#[derive(Debug)]
pub struct ApiClient {
    questions: mpsc::UnboundedSender<Ask>,
    waiting: Arc<Mutex<Waiting>>,
}

#[derive(Debug, Default)]
struct Waiting {
    last: u64,
    answers: BTreeMap<u64, oneshot::Sender<Answer>>,
    watches: BTreeMap<u64, mpsc::UnboundedSender<Change>>,
    lost: bool,
}

impl ApiClient {
    /// Connects to a api.
    ///
    /// # Errors
    /// When no server listens there.
    pub async fn connect(socket: &Path) -> Result<Self, ClientError> {
        let stream = UnixStream::connect(socket).await;
        let stream = stream.map_err(|source| ClientError { path: socket.to_owned(), source })?;
        let (reader, mut writer) = stream.into_split();
        let (questions, mut outgoing) = mpsc::unbounded_channel::<Ask>();
        let waiting = Arc::<Mutex<Waiting>>::default();
        tokio::spawn(async move {
            while let Some(ask) = outgoing.recv().await {
                let mut line = serde_json::to_vec(&ask).expect("objects are made of maps with text keys");
                line.push(b'\n');
                if writer.write_all(&line).await.is_err() {
                    return;
                }
            }
        });
        tokio::spawn(listen(reader, Arc::clone(&waiting)));
        Ok(Self { questions, waiting })
    }

    async fn ask(&self, question: Question) -> Result<Answer, ApiError> {
        let (sender, answered) = oneshot::channel();
        self.send(question, |waiting, id| _ = waiting.answers.insert(id, sender))?;
        match answered.await {
            Ok(Answer::Failed(error)) => Err(error),
            Ok(answer) => Ok(answer),
            Err(_) => Err(gone()),
        }
    }

    fn send(&self, question: Question, note: impl FnOnce(&mut Waiting, u64)) -> Result<(), ApiError> {
        let mut waiting = lock(&self.waiting);
        if waiting.lost {
            return Err(gone());
        }
        waiting.last += 1;
        let id = waiting.last;
        note(&mut waiting, id);
        self.questions.send(Ask { id, question }).map_err(|_| gone())
    }
}

async fn listen(reader: OwnedReadHalf, waiting: Arc<Mutex<Waiting>>) {
    let mut lines = BufReader::new(reader).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let Ok(Tell { id, answer }) = serde_json::from_str(&line) else { break };
        let mut waiting = lock(&waiting);
        match answer {
            Answer::Change(change) => {
                if waiting.watches.get(&id).is_some_and(|watch| watch.send(change).is_err()) {
                    waiting.watches.remove(&id);
                }
            }
            Answer::Ended => _ = waiting.watches.remove(&id),
            answer => {
                if let Some(sender) = waiting.answers.remove(&id) {
                    // The caller may have stopped waiting.
                    let _ = sender.send(answer);
                }
            }
        }
    }
    // Dropping the senders ends all waits: no answer will come.
    let mut waiting = lock(&waiting);
    waiting.lost = true;
    waiting.answers.clear();
    waiting.watches.clear();
}

fn lock(waiting: &Mutex<Waiting>) -> MutexGuard<'_, Waiting> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

fn gone() -> ApiError {
    ApiError::Unavailable { reason: "the connection to the API server is gone".to_owned() }
}

fn unexpected() -> ApiError {
    ApiError::Unavailable { reason: "the API server answered another question".to_owned() }
}

#[async_trait]
impl ApiSource for ApiClient {
    async fn get(&self, key: &Key) -> Result<Object, ApiError> {
        object(self.ask(Question::Get(key.clone())).await?)
    }

    async fn list(&self, kind: Kind) -> Result<Vec<Object>, ApiError> {
        match self.ask(Question::List(kind)).await? {
            Answer::Objects(objects) => Ok(objects),
            _ => Err(unexpected()),
        }
    }

    async fn watch(&self, kind: Kind) -> Result<Watch, ApiError> {
        let (changes, watch) = mpsc::unbounded_channel();
        let (sender, answered) = oneshot::channel();
        self.send(Question::Watch(kind), |waiting, id| {
            waiting.watches.insert(id, changes);
            waiting.answers.insert(id, sender);
        })?;
        match answered.await {
            Ok(Answer::Watching) => Ok(watch),
            Ok(Answer::Failed(error)) => Err(error),
            Ok(_) => Err(unexpected()),
            Err(_) => Err(gone()),
        }
    }

    async fn create(&self, object: Object) -> Result<Object, ApiError> {
        self::object(self.ask(Question::Create(object)).await?)
    }

    async fn update(&self, object: Object) -> Result<Object, ApiError> {
        self::object(self.ask(Question::Update(object)).await?)
    }

    async fn patch(&self, patch: Patch) -> Result<Object, ApiError> {
        object(self.ask(Question::Patch(patch)).await?)
    }

    async fn delete(&self, key: &Key) -> Result<(), ApiError> {
        match self.ask(Question::Delete(key.clone())).await? {
            Answer::Done => Ok(()),
            _ => Err(unexpected()),
        }
    }

    async fn request_token(&self, request: &TokenRequest) -> Result<Token, ApiError> {
        match self.ask(Question::Token(request.clone())).await? {
            Answer::Token(token) => Ok(token),
            _ => Err(unexpected()),
        }
    }
}

fn object(answer: Answer) -> Result<Object, ApiError> {
    match answer {
        Answer::Object(object) => Ok(object),
        _ => Err(unexpected()),
    }
}
