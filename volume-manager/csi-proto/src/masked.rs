//! `Debug` of messages with secrets: their JSON, masked.

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

// Calls `masked!` with the messages that have secret fields. Written by the build script.
include!(concat!(env!("OUT_DIR"), "/secretive.rs"));
