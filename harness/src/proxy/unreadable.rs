//! Statuses in place of a driver's answers that no gRPC client can read, and of missing answers. Touches nothing.
//!
//! The client library makes up a status for each. Its message is replaced here by one that names the defect. Later the
//! defect is recognised by the beginning of that message, since a status has no other field for it.

use std::error::Error;
use std::path::Path;

use contracts::event::Unreadable;
use csi_proto::json::JsonError;
use serde_json::Value;
use tonic::{Code, Status};

/// The largest answer that is read: gRPC's default, as for the kubelet and the controllers of a cluster.
pub(super) const LARGEST_ANSWER: usize = 4 << 20;

/// The code of the status for a defect, and the beginning of its message.
fn code_and_prefix(defect: Unreadable) -> (Code, &'static str) {
    match defect {
        Unreadable::NoHttp => (Code::Unavailable, "the driver's socket carries no HTTP/2"),
        Unreadable::NoGrpc => (Code::Unknown, "the driver's answer is no gRPC"),
        Unreadable::NoMessage => (Code::Internal, "the driver's answer is no message of this call"),
        Unreadable::TooLarge => (
            Code::ResourceExhausted,
            "the driver's answer is larger than 4 MiB, which no gRPC client reads by default",
        ),
    }
}

/// The defect of the driver's answer, if the call failed because its answer could not be read.
pub fn unreadable(status: &Status) -> Option<Unreadable> {
    Unreadable::ALL.into_iter().find(|defect| {
        let (code, prefix) = code_and_prefix(*defect);
        status.code() == code && status.message().starts_with(prefix)
    })
}

const NO_ANSWER: &str = "the driver did not answer in time";

/// The status of a call without an answer in time.
pub(crate) fn no_answer() -> Status {
    Status::deadline_exceeded(NO_ANSWER)
}

/// Whether a call failed because no answer came in time. False if the driver itself answered DEADLINE_EXCEEDED.
pub fn is_unanswered(status: &Status) -> bool {
    status.code() == Code::DeadlineExceeded && status.message() == NO_ANSWER
}

const UNREACHABLE: &str = "connection error: driver at ";

/// The status of a call whose connection could not be made, or was lost.
pub(super) fn unreachable(socket: &Path, error: &(dyn Error + 'static)) -> Status {
    let mut last = error;
    while let Some(cause) = last.source() {
        last = cause;
    }
    Status::unavailable(format!("{UNREACHABLE}`{}`: {last}", socket.display()))
}

/// Whether a call failed because the driver could not be reached. False if the driver itself answered UNAVAILABLE.
pub(super) fn is_unreachable(status: &Status) -> bool {
    status.code() == Code::Unavailable && status.message().starts_with(UNREACHABLE)
}

pub(super) fn status(defect: Unreadable, detail: &str) -> Status {
    let (code, prefix) = code_and_prefix(defect);
    Status::new(code, format!("{prefix}: {detail}"))
}

/// The beginnings of the client library's messages for an answer that is not gRPC's.
const NO_GRPC: [&str; 5] = [
    "grpc-status header missing",
    "protocol error: missing grpc-status",
    "protocol error: received message with invalid compression flag",
    "Missing response message",
    "Unexpected EOF decoding stream",
];

/// The beginnings of its causes for a stream that ends without an answer, and the ends of those for a cancelled one.
const STREAM_ERROR: [&str; 2] = ["stream error detected: ", "stream error received: "];
const CANCELLED: [&str; 2] =
    ["stream no longer needed", "refused stream before processing any application logic"];

/// The status of a failed call. One that the client library made up for an unreadable or a missing answer is replaced
/// by one that names the defect, with the code that other libraries use for it.
pub(crate) fn explained(found: Status) -> Status {
    let message = found.message();
    if let Some(size) = message.strip_prefix("Error, decoded message length too large: found ") {
        let size = size.split(' ').next().unwrap_or_default();
        return status(Unreadable::TooLarge, &format!("{size} bytes"));
    }
    let cause = last_cause(&found);
    // The library's own clock for `grpc-timeout` has run out.
    if found.code() == Code::Cancelled && cause == "Timeout expired" {
        return no_answer();
    }
    if NO_GRPC.iter().any(|prefix| message.starts_with(prefix)) {
        return status(Unreadable::NoGrpc, message);
    }
    if cause.starts_with("connection error detected: ") {
        return status(Unreadable::NoHttp, &cause);
    }
    let is_cancelled = CANCELLED.iter().any(|suffix| cause.ends_with(suffix));
    if !is_cancelled && STREAM_ERROR.iter().any(|prefix| cause.starts_with(prefix)) {
        return status(Unreadable::NoGrpc, &cause);
    }
    if message.starts_with("failed to decode Protobuf message") {
        return status(Unreadable::NoMessage, message);
    }
    found
}

/// An OK answer as JSON; `None` for a method that CSI does not have.
///
/// # Errors
/// The status in its place, if its bytes are not the response message of the call.
pub(super) fn read(path: &str, bytes: &[u8]) -> Result<Option<Value>, Status> {
    match csi_proto::json::response(path, bytes) {
        Ok(answer) => Ok(Some(answer)),
        // Serialize: a time that no client can read, such as one with milliseconds for seconds.
        Err(JsonError::Decode { message, source }) => Err(no_message(&message, &source)),
        Err(JsonError::Serialize { message, source }) => Err(no_message(&message, &source)),
        Err(_) => Ok(None),
    }
}

fn no_message(message: &str, source: &dyn Error) -> Status {
    status(Unreadable::NoMessage, &format!("no `{message}` ({source})"))
}

/// The last error in the chain of a status's causes; empty if it has none.
fn last_cause(status: &Status) -> String {
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
    fn defect_is_recognised_in_its_status() {
        for defect in Unreadable::ALL {
            assert_eq!(unreadable(&status(defect, "x")), Some(defect));
        }
        for of_driver in [
            Status::resource_exhausted("no space is left for the volume"),
            Status::internal("the disk is gone"),
            Status::unknown("?"),
        ] {
            assert_eq!(unreadable(&explained(of_driver)), None);
        }
    }

    #[test]
    fn messages_of_the_client_library_name_a_defect() {
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
    fn response_must_decode_as_the_message_of_its_call() {
        let defect = |path: &str, bytes: &[u8]| read(path, bytes).as_ref().err().and_then(unreadable);
        let create = "/csi.v1.Controller/CreateVolume";
        assert!(read(create, &[]).is_ok_and(|answer| answer.is_some()));
        // An invalid protobuf tag, and a number in the field of the volume.
        for wrong in [&[0xff][..], &[0x08, 0x01]] {
            assert_eq!(defect(create, wrong), Some(Unreadable::NoMessage));
        }
        assert!(read("/other.Service/Call", &[0xff]).is_ok_and(|answer| answer.is_none()));
        // A snapshot of the year 49,500.
        let late = [0x0a, 0x09, 0x22, 0x07, 0x08, 0x80, 0xb0, 0xde, 0xf7, 0xd3, 0x2b];
        assert_eq!(defect("/csi.v1.Controller/CreateSnapshot", &late), Some(Unreadable::NoMessage));
    }
}
