//! The messages on the API server's socket: JSON, one message per line. Touches nothing.

use api::{ApiError, Change, Key, Kind, Object, Patch, Token, TokenRequest};
use serde::{Deserialize, Serialize};

/// A question of the node to the API server.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Ask {
    /// Pairs it with its answer.
    pub(super) id: u64,
    pub(super) question: Question,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Question {
    Get(Key),
    List(Kind),
    /// Answered by [`Answer::Change`] as long as the connection lasts.
    Watch(Kind),
    Create(Object),
    Update(Object),
    Patch(Patch),
    Delete(Key),
    Token(TokenRequest),
}

/// The answer of the API server to the node.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Tell {
    pub(super) id: u64,
    pub(super) answer: Answer,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    Object(Object),
    Objects(Vec<Object>),
    Done,
    Token(Token),
    Failed(ApiError),
    Watching,
    Change(Change),
    /// A watch has ended.
    Ended,
}
