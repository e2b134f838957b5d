//! Compiles the two contracts without `protoc` into clients, servers, and a descriptor set that the library
//! embeds for reflection. Messages with secrets get no derived `Debug`: the library implements a masked one.

use std::{env, fs, path::PathBuf};

use prost_reflect::{DescriptorPool, MessageDescriptor, Value};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let mut compiler = protox::Compiler::new(["proto"])?;
    compiler.include_imports(true).open_files(["proto/csi.proto", "proto/registration.proto"])?;
    // Encoded by the compiler itself: prost's structs would drop custom options such as `csi_secret`.
    let contracts = compiler.encode_file_descriptor_set();
    let secretive = secretive(&DescriptorPool::decode(&*contracts)?)?;
    fs::write(out.join("contracts.fds"), contracts)?;
    let names = secretive.iter().map(MessageDescriptor::name).collect::<Vec<_>>().join(" ");
    fs::write(out.join("secretive.rs"), format!("masked! {{ {names} }}\n"))?;
    // Ordered maps, so that a request encodes to the same bytes each time.
    tonic_prost_build::configure()
        .build_client(true)
        .build_server(true)
        .btree_map(".")
        .skip_debug(secretive.iter().map(MessageDescriptor::full_name))
        .compile_fds(compiler.file_descriptor_set())?;
    Ok(())
}

/// The messages with a field that is marked as secret.
fn secretive(pool: &DescriptorPool) -> Result<Vec<MessageDescriptor>, Box<dyn std::error::Error>> {
    let mark = pool.get_extension_by_name("csi.v1.csi_secret").ok_or("csi.proto declares no `csi_secret`")?;
    let marked = |message: &MessageDescriptor| {
        message.fields().any(|field| *field.options().get_extension(&mark) == Value::Bool(true))
    };
    Ok(pool.all_messages().filter(marked).collect())
}
