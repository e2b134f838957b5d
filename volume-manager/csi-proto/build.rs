//! Compiles the two contracts without `protoc`: into clients and servers, and into a descriptor set that the
//! library embeds for reflection.

use std::{env, fs, path::PathBuf};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let mut compiler = protox::Compiler::new(["proto"])?;
    compiler
        .include_imports(true)
        .include_source_info(true)
        .open_files(["proto/csi.proto", "proto/registration.proto"])?;
    // Encoded by the compiler: prost's own structs would drop the custom options, and with them `csi_secret`.
    fs::write(out.join("contracts.fds"), compiler.encode_file_descriptor_set())?;
    // Ordered maps, so that a request encodes to the same bytes each time.
    tonic_prost_build::configure()
        .build_client(true)
        .build_server(true)
        .btree_map(".")
        .compile_fds(compiler.file_descriptor_set())?;
    Ok(())
}
