//! Modules of a crate depend on each other in one direction: a circle among them is one module with several names.
//!
//! A module is a file or directory directly below `src`; what it uses is found in its paths (`crate::…`, `super::…`,
//! and names that the root exports again). Tests may look wherever they like.

use std::collections::{BTreeMap, BTreeSet};

use super::source::code;
use super::{Repository, Violation};

/// Circles that stay, with the reason. An entry whose circle is gone is a violation too.
const ALLOWED: &[(&str, &[&str], &str)] = &[
    (
        "harness",
        &["census", "cgroup", "container", "ledger", "loop_device", "sandbox"],
        "a ledger names its processes and a loop device its holders as the census finds them",
    ),
    (
        "host",
        &["door", "format"],
        "formatting and mounting is a method of the door, made of the door's own calls",
    ),
    (
        "sim",
        &[
            "api",
            "claims",
            "controllers",
            "crash",
            "damage",
            "driver",
            "faults",
            "growth",
            "neighbour",
            "objects",
            "script",
            "status",
            "trace",
            "views",
            "world",
        ],
        "a simulated world: each part can be hit by any other",
    ),
];

/// The modules of a crate, each with those that it uses.
type Uses = BTreeMap<String, BTreeSet<String>>;

pub(crate) fn check(repository: &Repository) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut seen = BTreeSet::new();
    for (name, package) in &repository.packages {
        for circle in circles(&uses(repository, &package.manifest)) {
            let modules: Vec<&str> = circle.iter().map(String::as_str).collect();
            match ALLOWED.iter().position(|(of, listed, _)| of == name && *listed == modules) {
                Some(at) => drop(seen.insert(at)),
                None => violations.push(Violation::new(
                    &package.manifest,
                    format!(
                        "the modules {} use each other: move the shared part below them",
                        modules.join(", ")
                    ),
                )),
            }
        }
    }
    let here = |name: &str| repository.packages.contains_key(name);
    for (at, (name, modules, _)) in ALLOWED.iter().enumerate() {
        if here(name) && !seen.contains(&at) {
            let gone =
                format!("`{name}` has no circle {} any more: remove it from ALLOWED", modules.join(", "));
            violations.push(Violation::new("xtask/src/tidy/circles.rs", gone));
        }
    }
    violations
}

/// Groups of two or more modules that reach each other, each group sorted.
fn circles(uses: &Uses) -> BTreeSet<Vec<String>> {
    let reached: BTreeMap<&String, BTreeSet<&String>> =
        uses.keys().map(|module| (module, reachable(uses, module))).collect();
    let mut found = BTreeSet::new();
    for (module, below) in &reached {
        let group: Vec<String> = below
            .iter()
            .filter(|other| reached[**other].contains(module))
            .map(|other| (*other).clone())
            .collect();
        if group.len() > 1 {
            found.insert(group);
        }
    }
    found
}

/// The modules that a module uses, directly or through others.
fn reachable<'a>(uses: &'a Uses, module: &String) -> BTreeSet<&'a String> {
    let mut found = BTreeSet::new();
    let mut open: Vec<&String> = uses[module].iter().collect();
    while let Some(next) = open.pop() {
        if found.insert(next) {
            open.extend(&uses[next]);
        }
    }
    found
}

/// The modules of the crate of a manifest.
fn uses(repository: &Repository, manifest: &str) -> Uses {
    let source = format!("{}src/", manifest.strip_suffix("Cargo.toml").unwrap_or_default());
    let files: BTreeMap<Vec<&str>, String> = (repository.rust())
        .filter_map(|(path, text)| {
            let inside = path.strip_prefix(&source)?.strip_suffix(".rs")?;
            Some((inside.split('/').collect(), without_tests(&code(text))))
        })
        .collect();
    let tests: BTreeSet<Vec<&str>> = files.iter().flat_map(|(path, text)| test_modules(path, text)).collect();
    let counts = |path: &[&str]| !(1..=path.len()).any(|length| tests.contains(&path[..length]));
    let product: Vec<(&Vec<&str>, &String)> =
        files.iter().filter(|(path, _)| counts(path) && !is_root(path) && path[0] != "bin").collect();
    let names: BTreeSet<&str> = product.iter().map(|(path, _)| path[0]).collect();
    let exported: BTreeMap<String, &str> =
        files.iter().filter(|(path, _)| is_root(path)).flat_map(|(_, root)| exports(root, &names)).collect();

    let mut uses: Uses = names.iter().map(|name| ((*name).to_owned(), BTreeSet::new())).collect();
    for (path, text) in product {
        for used in from_the_root(text, path.len()) {
            let module = names.get(used.as_str()).or_else(|| exported.get(&used));
            if let Some(module) = module.filter(|module| **module != path[0]) {
                uses.entry(path[0].to_owned()).or_default().insert((*module).to_owned());
            }
        }
    }
    uses
}

fn is_root(path: &[&str]) -> bool {
    matches!(path, ["lib" | "main"])
}

/// The text without its inline test modules, which stand at the end of a file.
fn without_tests(code: &str) -> String {
    let mut end = code.len();
    for (at, _) in code.match_indices("#[cfg(test)]") {
        let after = code[at..].lines().skip(1).map(str::trim).find(|line| !line.is_empty());
        if after.is_some_and(|line| line.starts_with("mod ") && line.ends_with('{')) {
            end = end.min(at);
        }
    }
    code[..end].to_owned()
}

/// The paths of modules that a file declares for tests alone.
fn test_modules<'a>(path: &[&'a str], text: &'a str) -> Vec<Vec<&'a str>> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let declared = |at: usize| {
        let (attribute, below) = (lines[at], lines.get(at + 1)?);
        let name = below.strip_suffix(';')?.split_whitespace().skip_while(|word| *word != "mod").nth(1)?;
        attribute.starts_with("#[cfg(").then_some(name).filter(|_| attribute.contains("test"))
    };
    let base = if is_root(path) { &[] } else { path };
    (0..lines.len()).filter_map(declared).map(|name| [base, &[name]].concat()).collect()
}

/// The names that the root exports from its modules.
fn exports<'a>(root: &str, modules: &BTreeSet<&'a str>) -> Vec<(String, &'a str)> {
    let mut exports = Vec::new();
    for module in modules {
        for statement in root.split(';') {
            let Some((_, path)) = statement.split_once(&format!("use {module}::")) else { continue };
            let names =
                path.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|name| !name.is_empty());
            exports.extend(names.map(|name| (name.to_owned(), *module)));
        }
    }
    exports
}

/// The first names of all paths that begin at the root of the crate, in a file that is `depth` modules below it.
fn from_the_root(text: &str, depth: usize) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let up = "super::".repeat(depth);
    for start in ["crate::", up.as_str()] {
        for (at, _) in text.match_indices(start) {
            let joined = text[..at].chars().next_back();
            if joined.is_some_and(|before| before.is_alphanumeric() || before == '_' || before == ':') {
                continue;
            }
            found.extend(heads(&text[at + start.len()..]));
        }
    }
    found
}

/// The first name of a path, or of each path in its braces.
fn heads(path: &str) -> Vec<String> {
    let name = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let Some(group) = path.strip_prefix('{') else { return vec![name(path)] };
    let (mut depth, mut heads, mut begins) = (0usize, Vec::new(), true);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => begins = true,
            c if begins && depth == 0 && !c.is_whitespace() => {
                heads.push(name(&group[at..]));
                begins = false;
            }
            _ => {}
        }
    }
    heads
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<Violation> {
        check(&Repository::made_of(files).with_package("toy", &[], &[]))
    }

    #[test]
    fn circle_is_named() {
        for (up, down) in [
            ("use crate::low::Low;", "use crate::high::High;"),
            ("use super::low;", "fn low() { crate::high::go() }"),
            ("use crate::{\n    mid::{Mid},\n    low::Low,\n};", "use crate::High;"),
        ] {
            let root = "mod high;\nmod low;\nmod mid;\npub use high::{High, Other};\n";
            let files = [("toy/src/lib.rs", root), ("toy/src/high.rs", up), ("toy/src/low.rs", down)];
            let violations = format!("{:?}", found(&[&files[..], &[("toy/src/mid.rs", "")]].concat()));
            assert!(violations.contains("high, low use each other"), "{up} {down}: {violations}");
        }
    }

    #[test]
    fn circle_through_a_third_module_is_named() {
        let files = [
            ("toy/src/a.rs", "use crate::b::B;"),
            ("toy/src/b/deep.rs", "use super::super::c::C;"),
            ("toy/src/b.rs", "mod deep;"),
            ("toy/src/c.rs", "fn c() { crate::a::go() }"),
        ];
        assert!(format!("{:?}", found(&files)).contains("a, b, c use each other"));
    }

    #[test]
    fn uses_in_a_single_direction_and_tests_are_fine() {
        let files = [
            ("toy/src/lib.rs", "mod high; mod low;"),
            ("toy/src/high.rs", "use crate::low::Low; use other_crate::low;"),
            (
                "toy/src/low.rs",
                "#[cfg(test)]\nmod tests;\n#[cfg(test)]\nmod inline {\n    use crate::high::High;\n}\n",
            ),
            ("toy/src/low/tests.rs", "use crate::high::High;"),
            ("toy/src/low/deep.rs", "use super::high;"),
            ("toy/src/low/text.rs", "const TEXT: &str = \"crate::high\"; // crate::high"),
        ];
        assert_eq!(found(&files), []);
    }
}
