//! Links the unoptimised program at a fixed address.
//!
//! A run starts itself many times: for the janitor, for each case, for each node and each driver. Where the program may
//! lie anywhere, each start first corrects 350,000 addresses in it, and each fork copies the corrected pages: a quarter
//! of the processor time of a run. An optimised program has few of them, and keeps its random address.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("PROFILE").is_ok_and(|profile| profile == "debug") {
        println!("cargo::rustc-link-arg-bin=volproof=-no-pie");
    }
}
