//! The steps of `docs/first-driver-python.md`: each program is built from the page, each command is run, and its output is
//! compared with the page. Needs Python with grpcio, and root.

use std::path::Path;
use std::process::Command;

use tests::{Volproof, has_root};

const PAGE: &str = include_str!("../docs/first-driver-python.md");

/// The blocks of code of a page, with their languages.
fn blocks(page: &str) -> Vec<(String, String)> {
    let mut blocks = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if let Some(language) = line.strip_prefix("```") {
            let code = lines.by_ref().take_while(|line| *line != "```");
            blocks.push((language.to_owned(), code.map(|line| format!("{line}\n")).collect()));
        }
    }
    blocks
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// The lines of the function with the same head in a program: its first line, and the one after its last.
fn find(program: &[String], head: &str) -> Option<(usize, usize)> {
    let name = head.split('(').next().unwrap_or_default();
    let first = program.iter().position(|line| line.split('(').next() == Some(name))?;
    let is_outside = |line: &String| !line.is_empty() && indent(line) <= indent(head);
    let after = program[first + 1..].iter().position(is_outside).map_or(program.len(), |at| first + 1 + at);
    let blank = program[..after].iter().rev().take_while(|line| line.is_empty()).count();
    Some((first, after - blank))
}

/// The program with the functions of a block instead of its own. A new function comes after the one before it in the
/// block, or before all classes.
fn changed(program: &str, block: &str) -> String {
    if block.starts_with("import ") {
        return block.to_owned();
    }
    let mut program: Vec<String> = program.lines().map(str::to_owned).collect();
    let block: Vec<String> = block.lines().map(str::to_owned).collect();
    let mut behind = None;
    for head in block.iter().filter(|line| line.trim_start().starts_with("def ")) {
        let (first, after) = find(&block, head).expect("it is in there");
        let mut function = block[first..after].to_vec();
        let (from, to) = match (find(&program, head), behind) {
            (Some(place), _) => place,
            (None, Some(behind)) => {
                function.splice(..0, vec![String::new(); if indent(head) == 0 { 2 } else { 1 }]);
                (behind, behind)
            }
            (None, None) => {
                let classes = program.iter().position(|line| line.starts_with("class ")).expect("a class");
                function.extend([String::new(), String::new()]);
                (classes, classes)
            }
        };
        let lines = function.iter().rposition(|line| !line.is_empty()).map_or(0, |last| last + 1);
        behind = Some(from + lines);
        program.splice(from..to, function);
    }
    program.join("\n") + "\n"
}

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
fn run(block: &str, python: &str, directory: &Path) {
    let mut lines = block.lines();
    let command =
        lines.next().and_then(|line| line.strip_prefix("$ volproof run --driver-cmd '")).expect("a run");
    let (driver, filters) = command.split_once('\'').expect("the driver's command is quoted");
    let driver = driver.replace(".venv/bin/python", python);
    let driver = driver.replace("driver.py", &directory.join("driver.py").display().to_string());
    let ended = Volproof::new().args("run --driver-cmd").arg(driver).args(filters).run();
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
    for (language, block) in blocks(PAGE) {
        match language.as_str() {
            "python" => program = changed(&program, &block),
            "console" => {
                std::fs::write(directory.path().join("driver.py"), &program).expect("it can be written");
                run(&block, &python, directory.path());
                runs += 1;
            }
            _ => {}
        }
    }
    assert_eq!(runs, 5, "the page has five steps");
    assert!((60..=150).contains(&program.lines().count()), "{} lines", program.lines().count());
}

#[test]
fn functions_of_a_page_replace_those_of_the_program() {
    let program =
        "import x\n\n\nclass A:\n    def f(self):\n        a\n\n    def g(self):\n        b\n\n\nend\n";
    let changed = changed(program, "def new():\n    n\n");
    let changed = self::changed(&changed, "    def f(self):\n        c\n\n    def h(self):\n        d\n");
    let expected = "import x\n\n\ndef new():\n    n\n\n\nclass A:\n    def f(self):\n        c\n\n    def h(self):\n        \
                    d\n\n    def g(self):\n        b\n\n\nend\n";
    assert_eq!(changed, expected);
}
