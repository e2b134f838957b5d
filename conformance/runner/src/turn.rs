//! The turns of the workers whose cases share drivers: numbers of cases, which each worker takes from one pipe. Reads that
//! pipe.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;

use serde::{Deserialize, Serialize};

/// The number of a case, as it lies in the pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turn(pub(crate) [u8; 2]);

impl Turn {
    /// The turn of the case with this number, of at most 65,535.
    pub(crate) fn of(number: usize) -> Self {
        Self((number as u16).to_le_bytes())
    }

    pub(crate) fn number(self) -> usize {
        usize::from(u16::from_le_bytes(self.0))
    }
}

/// A worker's end of the pipe.
#[derive(Debug)]
pub(crate) struct Turns(File);

impl From<OwnedFd> for Turns {
    fn from(pipe: OwnedFd) -> Self {
        Self(pipe.into())
    }
}

impl Iterator for Turns {
    type Item = Turn;

    fn next(&mut self) -> Option<Turn> {
        let mut turn = [0; 2];
        self.0.read_exact(&mut turn).ok().map(|()| Turn(turn))
    }
}
