//! What `Debug` shows of messages that hold secrets: their JSON, masked.

use std::fmt;

use crate::json;
use crate::v1::*;

macro_rules! masked {
    ($($message:ident)*) => {
        $(impl fmt::Debug for $message {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                json::show(stringify!($message), self, f)
            }
        })*
    };
}

// The messages, by their names: the build script knows which.
include!(concat!(env!("OUT_DIR"), "/secretive.rs"));
