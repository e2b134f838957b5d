//! The cases. Each is one function in one file; the id of a case is its path below this module.

mod csi;
