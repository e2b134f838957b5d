//! The driver of one step of `docs/first-driver-rust.md`. `FIRST_DRIVER_STEP` says of which.

#[allow(clippy::all, unreachable_pub, clippy::allow_attributes_without_reason, reason = "generated")]
mod csi {
    tonic::include_proto!("csi.v1");
}

/// The program of each step, as the page leads to it: the first ones do not use yet what the last one needs.
#[allow(dead_code, unused_imports, reason = "generated from the page, step by step")]
mod steps {
    include!(concat!(env!("OUT_DIR"), "/steps.rs"));
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let step = std::env::var("FIRST_DRIVER_STEP")?;
    steps::main(step.parse()?)
}
