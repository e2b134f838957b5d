//! The pages of tutorials: their blocks of code, and the program that they lead to step by step.

/// The blocks of code of a page, with their languages.
pub fn blocks(page: &str) -> Vec<(String, String)> {
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

/// Whether a function of Python or Rust begins in a line.
fn is_head(line: &str) -> bool {
    ["def ", "fn ", "async fn "].iter().any(|start| line.trim_start().starts_with(start))
}

/// The lines of the function with the same head in a program: its first line, and the one after its last.
fn find(program: &[String], head: &str) -> Option<(usize, usize)> {
    let name = head.split('(').next().unwrap_or_default();
    let first = program.iter().position(|line| line.split('(').next() == Some(name))?;
    let mut rest = program[first + 1..].iter();
    if head.contains("fn ") {
        let last = rest.position(|line| line.trim_start() == "}" && indent(line) == indent(head))?;
        return Some((first, first + last + 2));
    }
    let after = rest.position(|line| !line.is_empty() && indent(line) <= indent(head));
    let after = after.map_or(program.len(), |at| first + 1 + at);
    let blank = program[..after].iter().rev().take_while(|line| line.is_empty()).count();
    Some((first, after - blank))
}

/// The program with the functions of a block instead of its own. A new function comes after the one before it in the
/// block, or before all classes and implementations.
pub fn changed(program: &str, block: &str) -> String {
    if block.starts_with("import ") || block.starts_with("use ") {
        return block.to_owned();
    }
    let mut program: Vec<String> = program.lines().map(str::to_owned).collect();
    let block: Vec<String> = block.lines().map(str::to_owned).collect();
    let mut behind = None;
    for head in block.iter().filter(|line| is_head(line)) {
        let (first, after) = find(&block, head).expect("it is in there");
        let mut function = block[first..after].to_vec();
        let (from, to) = match (find(&program, head), behind) {
            (Some(place), _) => place,
            (None, Some(behind)) => {
                function.splice(..0, vec![String::new(); if indent(head) == 0 { 2 } else { 1 }]);
                (behind, behind)
            }
            (None, None) => {
                let is_type = |line: &String| line.starts_with("class ") || line.starts_with("#[tonic::");
                let types = program.iter().position(is_type).expect("a class or an implementation");
                function.extend([String::new(), String::new()]);
                (types, types)
            }
        };
        let lines = function.iter().rposition(|line| !line.is_empty()).map_or(0, |last| last + 1);
        behind = Some(from + lines);
        program.splice(from..to, function);
    }
    program.join("\n") + "\n"
}
