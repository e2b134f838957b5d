//! The product as a product: what the tests in this directory share.
//!
//! They run the `volproof` program as a person would ([`Volproof`]), read what it reported ([`Results`]), and
//! look at the machine before and after ([`Residue`]). They link nothing of the product, so that what they
//! test is the program and not its parts.

mod process;
mod residue;
mod results;
mod running_driver;
mod source_copy;
mod volproof;

pub use process::{Process, Role};
pub use residue::{Residue, settle};
pub use results::{Case, Finding, Results};
pub use running_driver::RunningDriver;
pub use source_copy::SourceCopy;
pub use volproof::{Ended, Volproof, built, cargo, root, target};

/// Says why a test that needs root does nothing without it; `cargo xtask test` counts such a test as skipped.
pub fn has_root() -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        eprintln!("skipped: needs root, to mount and to attach loop devices");
    }
    root
}
