//! The meaning of a failed call: whether it had no effect, or may have had one.
//!
//! Pure functions. The class is decided here, where the gRPC code is known.

use std::error::Error;
use std::fmt;
use std::path::Path;

use tonic::{Code, Status};

/// A CSI call that failed.
///
/// Displayed as the kubelet does in events: `rpc error: code = Internal desc = disk on fire`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallError {
    method: &'static str,
    code: Code,
    message: String,
}

impl CallError {
    /// The error of `method`, with each of `secrets` masked: a driver may repeat request fields in its message,
    /// and messages end up in events.
    pub(crate) fn new<'a>(
        method: &'static str,
        status: &Status,
        secrets: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        if let Some(error) = Self::from_client(method, status) {
            return error;
        }
        let mut message = status.message().to_owned();
        for secret in secrets {
            // Masking a shorter value would also mask parts of ordinary words.
            if secret.len() >= 3 {
                message = message.replace(secret, "***");
            }
        }
        Self { method, code: status.code(), message }
    }

    /// The error for a status that the gRPC client made itself; `None` for a driver's status.
    fn from_client(method: &'static str, status: &Status) -> Option<Self> {
        if csi_proto::is_timeout(status) {
            return Some(Self::deadline(method));
        }
        // The answer is too long to be received, so the driver has done its work. tonic's code is a final one;
        // the code of gRPC in other languages is not.
        if status.code() == Code::OutOfRange && status.message().contains("message length too large") {
            let message = "received message larger than max".to_owned();
            return Some(Self { method, code: Code::ResourceExhausted, message });
        }
        // The connection broke. Statuses that came from the driver have no source.
        let cause = Error::source(status)?;
        let message = format!("error reading from server: {}", root_cause(cause));
        Some(Self { method, code: Code::Unavailable, message })
    }

    /// The deadline passed before `method` answered.
    pub(crate) fn deadline(method: &'static str) -> Self {
        Self { method, code: Code::DeadlineExceeded, message: "context deadline exceeded".to_owned() }
    }

    /// The driver's socket cannot be connected to.
    pub(crate) fn unreachable(method: &'static str, endpoint: &Path, source: &(dyn Error + 'static)) -> Self {
        let endpoint = endpoint.display();
        let message = format!("connection error: cannot dial `{endpoint}`: {}", root_cause(source));
        Self { method, code: Code::Unavailable, message }
    }

    /// The method's name in the CSI specification.
    pub fn method(&self) -> &'static str {
        self.method
    }

    pub fn code(&self) -> Code {
        self.code
    }

    pub fn message(&self) -> &str {
        &self.message
    }

    /// Whether the call certainly had no effect. If not, it may have had one or may still be running; only its
    /// repetition or its undo settles that.
    pub fn is_final(&self) -> bool {
        match self.code {
            Code::Cancelled
            | Code::DeadlineExceeded
            | Code::Unavailable
            | Code::ResourceExhausted
            | Code::Aborted => false,
            Code::Ok
            | Code::Unknown
            | Code::InvalidArgument
            | Code::NotFound
            | Code::AlreadyExists
            | Code::PermissionDenied
            | Code::FailedPrecondition
            | Code::OutOfRange
            | Code::Unimplemented
            | Code::Internal
            | Code::DataLoss
            | Code::Unauthenticated => true,
        }
    }

    /// Whether the connection to the driver was lost: another instance may answer next, so nothing remembered
    /// holds.
    pub(crate) fn lost_the_driver(&self) -> bool {
        self.code == Code::Unavailable
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rpc error: code = {} desc = {}", code_name(self.code), self.message)
    }
}

impl Error for CallError {}

/// The innermost cause of an error.
fn root_cause<'a>(error: &'a (dyn Error + 'static)) -> &'a (dyn Error + 'static) {
    let mut root = error;
    while let Some(cause) = root.source() {
        root = cause;
    }
    root
}

/// The code's name in events and logs, in the spelling of Go's gRPC, which people search for.
pub(crate) fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "Canceled",
        Code::Unknown => "Unknown",
        Code::InvalidArgument => "InvalidArgument",
        Code::DeadlineExceeded => "DeadlineExceeded",
        Code::NotFound => "NotFound",
        Code::AlreadyExists => "AlreadyExists",
        Code::PermissionDenied => "PermissionDenied",
        Code::ResourceExhausted => "ResourceExhausted",
        Code::FailedPrecondition => "FailedPrecondition",
        Code::Aborted => "Aborted",
        Code::OutOfRange => "OutOfRange",
        Code::Unimplemented => "Unimplemented",
        Code::Internal => "Internal",
        Code::Unavailable => "Unavailable",
        Code::DataLoss => "DataLoss",
        Code::Unauthenticated => "Unauthenticated",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_codes_leave_the_outcome_open() {
        let open: Vec<_> = (0..17)
            .map(Code::from_i32)
            .filter(|code| !CallError::new("M", &Status::new(*code, ""), []).is_final())
            .map(code_name)
            .collect();
        assert_eq!(open, ["Canceled", "DeadlineExceeded", "ResourceExhausted", "Aborted", "Unavailable"]);
    }

    #[test]
    fn the_client_librarys_own_timeout_is_a_deadline() {
        let error = CallError::new("M", &Status::cancelled("Timeout expired"), []);
        assert_eq!(error.to_string(), "rpc error: code = DeadlineExceeded desc = context deadline exceeded");
        let other = CallError::new("M", &Status::cancelled("the driver gave up"), []);
        assert_eq!(other.to_string(), "rpc error: code = Canceled desc = the driver gave up");
        let drivers = CallError::new("M", &Status::internal("Timeout expired"), []);
        assert_eq!(drivers.code(), Code::Internal, "the text of a driver changes no code");
    }

    #[test]
    fn an_answer_that_is_too_long_leaves_the_outcome_open() {
        let status = Status::out_of_range(
            "Error, decoded message length too large: found 5 bytes, the limit is: 4 bytes",
        );
        let error = CallError::new("M", &status, []);
        assert!(!error.is_final());
        assert_eq!(
            error.to_string(),
            "rpc error: code = ResourceExhausted desc = received message larger than max"
        );
        assert!(CallError::new("M", &Status::out_of_range("no such size"), []).is_final());
        let drivers = CallError::new("M", &Status::internal(status.message()), []);
        assert_eq!(drivers.code(), Code::Internal, "the text of a driver changes no code");
    }

    #[derive(Debug, thiserror::Error)]
    #[error("the transport failed")]
    struct Outer(#[source] std::io::Error);

    #[test]
    fn broken_connection_leaves_the_outcome_open_and_names_the_cause() {
        let broken = Outer(std::io::Error::from_raw_os_error(104));
        let error = CallError::new("M", &Status::from_error(Box::new(broken)), []);
        assert!(error.lost_the_driver() && !error.is_final());
        let message = "error reading from server: Connection reset by peer (os error 104)";
        assert_eq!(error.message(), message);
    }

    #[test]
    fn a_secret_in_the_drivers_message_is_masked() {
        let status = Status::internal("cannot log in with hunter2 as a with xyz in uv");
        let error = CallError::new("M", &status, ["hunter2", "a", "xyz", "uv"]);
        assert_eq!(error.message(), "cannot log in with *** as a with *** in uv");
    }
}
