//! Statuses for answers of a driver that no gRPC client can read, and for missing answers. Touches nothing.
//!
//! The client library makes up a status for each. Here its message is replaced by one that says what happened, and by
//! which the kind is recognised later: a status has no other field for that.

use std::error::Error;

use contracts::event::Unreadable;
use csi_proto::json::JsonError;
use tonic::{Code, Status};

/// The largest answer that is read, as by the kubelet and the controllers of a cluster: gRPC's default.
pub(super) const LARGEST_ANSWER: usize = 4 << 20;

/// The code and the beginning of the message of such a status.
fn mark(of: Unreadable) -> (Code, &'static str) {
    match of {
        Unreadable::NoHttp => (Code::Unavailable, "the driver's socket carries no HTTP/2"),
        Unreadable::NoGrpc => (Code::Unknown, "the driver's answer is no gRPC"),
        Unreadable::NoMessage => (Code::Internal, "the driver's answer is no message of this call"),
        Unreadable::TooLarge => (
            Code::ResourceExhausted,
            "the driver's answer is larger than 4 MiB, which no gRPC client reads by default",
        ),
    }
}

/// Why the answer of a call could not be read, if that is why the call failed.
pub fn unreadable(status: &Status) -> Option<Unreadable> {
    Unreadable::ALL.into_iter().find(|one| {
        let (code, words) = mark(*one);
        status.code() == code && status.message().starts_with(words)
    })
}

const NO_ANSWER: &str = "the driver did not answer in time";

/// The status of a call that was not answered in its time.
pub(crate) fn no_answer() -> Status {
    Status::deadline_exceeded(NO_ANSWER)
}

/// Whether a call failed since there was no answer in its time. A driver may say DEADLINE_EXCEEDED as well.
pub fn is_unanswered(status: &Status) -> bool {
    status.code() == Code::DeadlineExceeded && status.message() == NO_ANSWER
}

pub(super) fn status(of: Unreadable, detail: &str) -> Status {
    let (code, words) = mark(of);
    Status::new(code, format!("{words}: {detail}"))
}

/// Replaces a status that the client library made up, with the code that other libraries use for it.
pub(crate) fn explained(found: Status) -> Status {
    let message = found.message();
    if let Some(size) = message.strip_prefix("Error, decoded message length too large: found ") {
        let size = size.split(' ').next().unwrap_or_default();
        return status(Unreadable::TooLarge, &format!("{size} bytes"));
    }
    let cause = root(&found);
    if found.code() == Code::Cancelled && cause == "Timeout expired" {
        // The library's own clock for `grpc-timeout` has run out; the driver has not answered.
        return no_answer();
    }
    // The library's messages for a peer without HTTP/2, and for a response that is not gRPC's.
    let is_no_grpc = [
        "grpc-status header missing",
        "protocol error: missing grpc-status",
        "protocol error: received message with invalid compression flag",
        "Missing response message",
        "Unexpected EOF decoding stream",
    ];
    let is_no_answer = ["stream error detected: ", "stream error received: "];
    let is_cancelled = cause.ends_with("stream no longer needed") || cause.ends_with("refused stream");
    if is_no_grpc.iter().any(|words| message.starts_with(words)) {
        return status(Unreadable::NoGrpc, message);
    }
    if cause.starts_with("connection error detected: ") {
        return status(Unreadable::NoHttp, &cause);
    }
    if !is_cancelled && is_no_answer.iter().any(|words| cause.starts_with(words)) {
        return status(Unreadable::NoGrpc, &cause);
    }
    if message.starts_with("failed to decode Protobuf message") {
        return status(Unreadable::NoMessage, message);
    }
    found
}

/// The status of an answer that is OK, if its bytes are not the message of the call.
pub(super) fn misread(path: &str, bytes: &[u8]) -> Option<Status> {
    match csi_proto::json::response(path, bytes) {
        Err(JsonError::Decode { message, source }) => {
            Some(status(Unreadable::NoMessage, &format!("no `{message}` ({source})")))
        }
        // Other statuses are passed on unchanged.
        _ => None,
    }
}

/// The last cause of a status; empty without one.
fn root(status: &Status) -> String {
    let mut last: Option<&(dyn Error + 'static)> = status.source();
    while let Some(cause) = last.and_then(Error::source) {
        last = Some(cause);
    }
    last.map(ToString::to_string).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_is_known_again_by_its_words() {
        for one in Unreadable::ALL {
            assert_eq!(unreadable(&status(one, "x")), Some(one));
        }
        for honest in [
            Status::resource_exhausted("no space is left for the volume"),
            Status::internal("the disk is gone"),
            Status::unknown("?"),
        ] {
            assert_eq!(unreadable(&explained(honest)), None);
        }
    }

    #[test]
    fn words_of_the_client_library_are_explained() {
        for (found, expected) in [
            (Status::unknown("protocol error: missing grpc-status trailer, …"), Unreadable::NoGrpc),
            (Status::internal("Missing response message."), Unreadable::NoGrpc),
            (
                Status::internal("failed to decode Protobuf message: invalid tag value: 0"),
                Unreadable::NoMessage,
            ),
            (
                Status::out_of_range(
                    "Error, decoded message length too large: found 9 bytes, the limit is: 4 bytes",
                ),
                Unreadable::TooLarge,
            ),
        ] {
            assert_eq!(unreadable(&explained(found)), Some(expected));
        }
    }

    #[test]
    fn bytes_are_held_against_the_message_of_their_call() {
        let create = "/csi.v1.Controller/CreateVolume";
        assert!(misread(create, &[]).is_none());
        // A tag that no protobuf has, and a number in place of the volume.
        for wrong in [&[0xff][..], &[0x08, 0x01]] {
            assert_eq!(misread(create, wrong).as_ref().and_then(unreadable), Some(Unreadable::NoMessage));
        }
        assert!(misread("/other.Service/Call", &[0xff]).is_none());
    }
}
