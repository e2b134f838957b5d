//! gRPC codes in the spelling of Go, which the recordings use.

use tonic::Code;

const NAMES: [(&str, Code); 17] = [
    ("OK", Code::Ok),
    ("Canceled", Code::Cancelled),
    ("Unknown", Code::Unknown),
    ("InvalidArgument", Code::InvalidArgument),
    ("DeadlineExceeded", Code::DeadlineExceeded),
    ("NotFound", Code::NotFound),
    ("AlreadyExists", Code::AlreadyExists),
    ("PermissionDenied", Code::PermissionDenied),
    ("ResourceExhausted", Code::ResourceExhausted),
    ("FailedPrecondition", Code::FailedPrecondition),
    ("Aborted", Code::Aborted),
    ("OutOfRange", Code::OutOfRange),
    ("Unimplemented", Code::Unimplemented),
    ("Internal", Code::Internal),
    ("Unavailable", Code::Unavailable),
    ("DataLoss", Code::DataLoss),
    ("Unauthenticated", Code::Unauthenticated),
];

/// The name of a code, such as `DeadlineExceeded`.
pub fn code_name(code: Code) -> &'static str {
    NAMES.iter().find(|(_, known)| *known == code).map_or("Unknown", |(name, _)| name)
}

pub fn code_from_name(name: &str) -> Option<Code> {
    NAMES.iter().find(|(known, _)| *known == name).map(|(_, code)| *code)
}

/// All names there are.
pub fn code_names() -> impl Iterator<Item = &'static str> {
    NAMES.iter().map(|(name, _)| *name)
}
