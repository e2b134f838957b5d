//! The harness's end of the connection to a node's process: JSON, one message per line.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedReadHalf;
use tokio::sync::{mpsc, oneshot};

use super::protocol::{Answer, Order, Ordered, Said};

/// The connection is closed.
#[derive(Debug)]
pub(super) struct Lost;

#[derive(Debug)]
pub(super) struct Conversation {
    orders: mpsc::UnboundedSender<Ordered>,
    waiting: Arc<Mutex<Waiting>>,
}

/// The callers that wait for an answer.
#[derive(Debug, Default)]
struct Waiting {
    last: u64,
    answers: BTreeMap<u64, oneshot::Sender<Said>>,
    lost: bool,
}

impl Conversation {
    pub(super) fn begin(stream: UnixStream) -> Self {
        let (reader, mut writer) = stream.into_split();
        let (orders, mut outgoing) = mpsc::unbounded_channel::<Ordered>();
        let waiting = Arc::<Mutex<Waiting>>::default();
        tokio::spawn(async move {
            while let Some(ordered) = outgoing.recv().await {
                let mut line = serde_json::to_vec(&ordered).expect("orders are made of plain values");
                line.push(b'\n');
                if writer.write_all(&line).await.is_err() {
                    return;
                }
            }
        });
        tokio::spawn(listen(reader, Arc::clone(&waiting)));
        Self { orders, waiting }
    }

    pub(super) async fn ask(&self, order: Order) -> Result<Said, Lost> {
        let (sender, answered) = oneshot::channel();
        {
            let mut waiting = lock(&self.waiting);
            if waiting.lost {
                return Err(Lost);
            }
            waiting.last += 1;
            let id = waiting.last;
            waiting.answers.insert(id, sender);
            self.orders.send(Ordered { id, order }).map_err(|_| Lost)?;
        }
        answered.await.map_err(|_| Lost)
    }
}

async fn listen(reader: OwnedReadHalf, waiting: Arc<Mutex<Waiting>>) {
    let mut lines = BufReader::new(reader).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        // The other end is this binary; a line that cannot be parsed ends the connection.
        let Ok(Answer { id, said }) = serde_json::from_str(&line) else { break };
        if let Some(sender) = lock(&waiting).answers.remove(&id) {
            // The caller may no longer wait.
            let _ = sender.send(said);
        }
    }
    let mut waiting = lock(&waiting);
    waiting.lost = true;
    waiting.answers.clear();
}

fn lock(waiting: &Mutex<Waiting>) -> MutexGuard<'_, Waiting> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}
