//! Makes the program of each step from the page: its first block, then that program with the functions of the next ones.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::{env, fs};

#[expect(unreachable_pub, reason = "it is a part of another crate as well")]
#[path = "../src/page.rs"]
mod page;

const PAGE: &str = "../../docs/first-driver-rust.md";
const PROTO: &str = "../../volume-manager/csi-proto/proto";

/// The types of CSI, made once for all steps.
const OWN_TYPES: &str = "mod csi {\n    tonic::include_proto!(\"csi.v1\");\n}\n";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for input in [PAGE, PROTO, "../src/page.rs"] {
        println!("cargo::rerun-if-changed={input}");
    }
    let files = protox::compile(["csi.proto"], [PROTO])?;
    tonic_prost_build::configure().build_client(false).generate_default_stubs(true).compile_fds(files)?;

    let (mut program, mut steps, mut calls, mut count) = (String::new(), String::new(), String::new(), 0);
    for (language, block) in page::blocks(&fs::read_to_string(PAGE)?) {
        match language.as_str() {
            "rust" => program = page::changed(&program, &block),
            "console" => {
                count += 1;
                let of_step = program.replace(OWN_TYPES, "use crate::csi;\n");
                let of_step = of_step.replace("async fn main()", "pub(super) async fn main()");
                let indented = of_step.lines().map(|line| format!("    {line}\n")).collect::<String>();
                writeln!(steps, "mod step{count} {{\n{indented}}}")?;
                writeln!(calls, "        {count} => step{count}::main(),")?;
            }
            _ => {}
        }
    }
    writeln!(
        steps,
        "pub(crate) fn main(step: u32) -> Result<(), Box<dyn std::error::Error>> {{\n    match step {{\n{calls}        \
         _ => Err(\"there is no such step\".into()),\n    }}\n}}"
    )?;
    fs::write(PathBuf::from(env::var("OUT_DIR")?).join("steps.rs"), steps)?;
    Ok(())
}
