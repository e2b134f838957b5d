//! The messages between host and guest: JSON lines on the control port, raw bytes on the data port.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Name of the control port below `/sys/class/virtio-ports`.
pub const CONTROL_PORT: &str = "volproof.control";
/// Name of the data port.
pub const DATA_PORT: &str = "volproof.data";
/// Where a guest has the driver's root, if it boots with a disk of that.
pub const DRIVER_ROOT: &str = "/driver-root";

/// An order of the host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case")]
pub enum Order {
    /// Say hello again: the guest has just come out of a snapshot.
    Hello {
        /// Nanoseconds since the epoch: the guest's clock stood still meanwhile.
        now_ns: i64,
    },
    /// Run a program until it ends, and send all its output.
    Run(Run),
    /// Kill the process group of a program that runs.
    Kill {
        /// The id of the order that started the program.
        id: u64,
    },
    /// Take a file: its bytes follow on the data port.
    Put {
        path: String,
        /// The number of bytes that follow.
        len: u64,
        mode: u32,
    },
    /// Give a file or a directory, as a tar archive on the data port.
    Get { path: String },
    /// Sync and power off.
    PowerOff,
}

/// A program to be run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The id of the program in later messages.
    pub id: u64,
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// Environment beside `PATH` and `HOME`.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// The program's standard input.
    #[serde(default)]
    pub stdin: String,
    /// Directories that are made before it starts.
    #[serde(default)]
    pub makes: Vec<String>,
    /// Descriptors beside 1 and 2 whose output is wanted.
    #[serde(default)]
    pub also: Vec<i32>,
    /// A descriptor on which it reads for as long as it may live.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifeline: Option<i32>,
    /// After this it is killed.
    pub timeout_ms: u64,
}

/// A message of the guest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "told", rename_all = "snake_case")]
pub enum Told {
    /// The guest is up.
    Hello {
        kernel: String,
        /// Milliseconds since its kernel started.
        uptime_ms: u64,
        /// Modules that would not load, and why.
        module_errors: BTreeMap<String, String>,
    },
    /// Output of a program.
    Output {
        /// The id of the order that started the program.
        id: u64,
        /// The descriptor of the output.
        fd: i32,
        /// The output; bytes that are no UTF-8 are replaced.
        data: String,
    },
    /// A program has ended.
    Exit(Exit),
    /// A file was taken.
    Taken {
        /// Why not, if it was not.
        error: Option<String>,
    },
    /// An archive of this size in bytes follows on the data port.
    Given {
        /// In bytes.
        len: u64,
        /// Why there is nothing, if there is nothing.
        error: Option<String>,
    },
    /// An order was not understood.
    Refused {
        /// The defect of the order.
        why: String,
    },
    /// The last word before power is off.
    Bye,
}

/// The end of a program.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Exit {
    /// The id of the order that started the program.
    pub id: u64,
    /// Its exit status, if it exited.
    pub code: Option<i32>,
    /// The signal that ended it, if one did.
    pub signal: Option<i32>,
    /// Why it could not be started, if it could not.
    pub error: Option<String>,
    /// The program was killed at its deadline.
    pub timed_out: bool,
    /// The program was killed and still exists: it waits in the kernel, and the kernel log has the stack.
    pub stuck: bool,
}
