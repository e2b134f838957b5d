//! Answers that no client of gRPC can read.

use serde::{Deserialize, Serialize};

/// Why an answer cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unreadable {
    /// The bytes from the socket are no HTTP/2, so they answer no particular call.
    NoHttp,
    /// The answer has no gRPC status.
    NoGrpc,
    /// The status is OK, and the bytes are not the message of the call.
    NoMessage,
    /// The answer is larger than the clients of a cluster accept.
    TooLarge,
}

impl Unreadable {
    pub const ALL: [Self; 4] = [Self::NoHttp, Self::NoGrpc, Self::NoMessage, Self::TooLarge];

    /// The call that it answers, if it answers one.
    pub fn of(self, method: &str) -> &str {
        if self == Self::NoHttp { "" } else { method }
    }

    /// The fault of the answer, in the words of a finding.
    pub fn cause(self) -> &'static str {
        match self {
            Self::NoHttp => "what the driver writes into its socket is no HTTP/2",
            Self::NoGrpc => "the answer has no gRPC status",
            Self::NoMessage => "the answer is not the message that CSI defines for the call",
            Self::TooLarge => "an answer is larger than the 4 MiB that the clients of a cluster read",
        }
    }
}
