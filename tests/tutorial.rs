//! The steps of `docs/first-driver-python.md` and `docs/first-driver-rust.md`: each program is built from the page, each
//! command is run, and its output is compared with the page. Needs root, and for one of them Python with grpcio.

use std::path::{Path, PathBuf};
use std::process::Command;

use tests::{Volproof, cargo, has_root, page, target};

const IN_PYTHON: &str = include_str!("../docs/first-driver-python.md");
const IN_RUST: &str = include_str!("../docs/first-driver-rust.md");

/// A Python that has what the page installs.
fn python() -> Option<String> {
    let python = std::env::var("VOLPROOF_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let has = Command::new(&python).args(["-c", "import grpc, grpc_tools"]).output();
    has.is_ok_and(|output| output.status.success()).then_some(python)
}

fn make_stubs(python: &str, directory: &Path) {
    let proto = concat!(env!("CARGO_MANIFEST_DIR"), "/../volume-manager/csi-proto/proto");
    let made = Command::new(python)
        .args(["-m", "grpc_tools.protoc", "-I", proto, "--python_out=.", "--grpc_python_out=.", "csi.proto"])
        .current_dir(directory)
        .output()
        .expect("it can be started");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

/// Runs a command of the page, and compares its output with the page.
fn run(block: &str, driver: impl Fn(&str) -> String) {
    let mut lines = block.lines();
    let command =
        lines.next().and_then(|line| line.split_once("volproof run --driver-cmd '")).expect("a run");
    let (command, filters) = command.1.split_once('\'').expect("the driver's command is quoted");
    let ended = Volproof::new().args("run --driver-cmd").arg(driver(command)).args(filters).run();
    for said in lines.filter(|line| !line.is_empty()) {
        // The columns of the terminal are not the page's.
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words(&ended.stdout).contains(said), "{said}\n{}", ended.told());
    }
}

#[test]
fn each_step_of_the_python_tutorial_is_as_its_page_says() {
    let Some(python) = python().filter(|_| has_root()) else {
        return println!(
            "skipped: no Python with grpcio and grpcio-tools (VOLPROOF_PYTHON names one), or no root"
        );
    };
    // Not below `/tmp`, which is replaced in the sandbox.
    let directory = tempfile::tempdir_in("/var/lib").expect("a directory");
    make_stubs(&python, directory.path());
    let (mut program, mut runs) = (String::new(), 0);
    for (language, block) in page::blocks(IN_PYTHON) {
        match language.as_str() {
            "python" => program = page::changed(&program, &block),
            "console" => {
                let file = directory.path().join("driver.py");
                std::fs::write(&file, &program).expect("it can be written");
                run(&block, |driver| {
                    let driver = driver.replace(".venv/bin/python", &python);
                    driver.replace("driver.py", &file.display().to_string())
                });
                runs += 1;
            }
            _ => {}
        }
    }
    assert_eq!(runs, 5, "the page has five steps");
    assert!((60..=150).contains(&program.lines().count()), "{} lines", program.lines().count());
}

/// The program that holds the driver of each step in Rust: its build has made them from the page.
fn drivers_in_rust() -> PathBuf {
    let program = target().join("debug/first-driver");
    if !program.exists() {
        let built = cargo().args(["build", "--locked", "--package", "first-driver"]).status();
        assert!(built.expect("cargo runs").success());
    }
    program
}

#[test]
fn each_step_of_the_rust_tutorial_is_as_its_page_says() {
    if !has_root() {
        return;
    }
    let (program, mut step) = (drivers_in_rust(), 0);
    for (_, block) in page::blocks(IN_RUST).into_iter().filter(|(language, _)| language == "console") {
        step += 1;
        let of_step = format!("env FIRST_DRIVER_STEP={step} {}", program.display());
        run(&block, |driver| driver.replace("target/debug/first-driver", &of_step));
    }
    assert_eq!(step, 5, "the page has five steps");
}

#[test]
fn functions_of_a_page_replace_those_of_the_program() {
    let program =
        "import x\n\n\nclass A:\n    def f(self):\n        a\n\n    def g(self):\n        b\n\n\nend\n";
    let changed = page::changed(program, "def new():\n    n\n");
    let changed = page::changed(&changed, "    def f(self):\n        c\n\n    def h(self):\n        d\n");
    let expected = "import x\n\n\ndef new():\n    n\n\n\nclass A:\n    def f(self):\n        c\n\n    def h(self):\n        \
                    d\n\n    def g(self):\n        b\n\n\nend\n";
    assert_eq!(changed, expected);
}

#[test]
fn function_in_rust_ends_with_its_brace() {
    let program = "use x;\n\n#[tonic::async_trait]\nimpl A {\n    async fn f(\n        &self,\n    ) -> B {\n        a\n    \
                   }\n}\n";
    let changed = page::changed(program, "    async fn f(\n        &self,\n    ) -> B {\n        c\n    }\n");
    assert_eq!(changed, program.replace("        a\n", "        c\n"));
}
