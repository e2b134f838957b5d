//! Shared code of the tests of the program.
//!
//! The tests run the `volproof` program as a user would ([`Volproof`]), read its report ([`Results`]), and compare the
//! machine before and after ([`Residue`]). They link nothing of the product, so that they test the program and not its
//! parts.

mod image;
pub mod page;
mod parallel;
mod part;
mod planted;
mod process;
mod residue;
mod results;
mod running_driver;
mod source_copy;
mod volproof;

pub use image::{architecture, image_with_fake_csi, layer, layout, root_with};
pub use parallel::{in_parallel, while_waiting};
pub use part::Part;
pub use planted::{Mutant, Planted, SWITCH};
pub use process::{Process, Role};
pub use residue::{Residue, settle};
pub use results::{Case, Finding, Results};
pub use running_driver::RunningDriver;
use source_copy::SourceCopy;
pub use volproof::{Ended, Volproof, built, cargo, root, target, xtask};

/// Whether this is root. If not, prints why the test is skipped; `cargo xtask test` counts it.
pub fn has_root() -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        eprintln!("skipped: needs root, to mount and to attach loop devices");
    }
    root
}

/// Whether tests run in full: `cargo xtask test --thorough` sets `VOLPROOF_THOROUGH`. If not, prints the shorter test that
/// runs instead, which `cargo xtask test` lists.
pub fn is_thorough(instead: &str) -> bool {
    let thorough = std::env::var_os("VOLPROOF_THOROUGH").is_some_and(|value| value != "0");
    if !thorough {
        println!("not thorough: {instead}");
    }
    thorough
}
