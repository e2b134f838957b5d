//! `cargo xtask new-case csi::block`: the skeleton of a case, which is also the guide to writing one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};

use crate::flags::NewCase;
use crate::workspace::root;

/// The directory of the cases, from the root of the repository.
const CASES: &str = "conformance/cases/src";

/// The name of a case until its author renames it.
const UNNAMED: &str = "does_what_it_should";

const HEADER: &str = "//! SUBJECT: what it is, in one line.

use crate::prelude::*;
";

/// The comments are the guide: a person who has read them may delete them.
const SKELETON: &str = r##"
/// The sentence this case proves, as the standard would put it: `volproof explain` prints it.
///
/// CSI, NodePublishVolume: where the sentence comes from.
// Needs stand here and nowhere else: the runner asks the driver and the machine before anything is set up.
#[case(needs = [])]
async fn NAME(cx: &mut Cx) -> Result {
    // A volume on the driver; `.block()` for a raw block device. Each name is written once.
    let data = cx.volume("data").create().await?;

    // A pod that uses it, up to the moment its containers may start.
    let web = cx.pod("web").volume(&data, "/data").start().await?;
    // Compares everything that happened since the last look, in order. It first waits until no operation is pending.
    // Leave it empty, run the case once with UPDATE_EXPECT=1, and then read what was written here.
    cx.sees(expect![[r#""#]]).await?;

    web.stop().await?;
    // Clean up nothing: the sandbox does. The census reports what the case leaves behind.
    cx.sees(expect![[r#""#]]).await
}
"##;

/// The module and the function of a new case.
#[derive(Debug, PartialEq, Eq)]
struct CasePath {
    /// The modules below `cases`, outermost first.
    modules: Vec<String>,
    name: String,
}

pub(crate) fn run(flags: &NewCase) -> Result<ExitCode> {
    let case = parse(&flags.case)?;
    let cases = root().join(CASES);
    let file = write(&cases, &case)?;
    let shown = file.strip_prefix(root()).unwrap_or(&file).display().to_string();
    println!("{:>12} {} in {shown}", "Wrote", case.name);
    println!("{:>12} cargo xtask conformance '{}::{}'", "Run it with", case.modules.join("::"), case.name);
    Ok(ExitCode::SUCCESS)
}

/// `a::b` is a file, `a::b::c` a function `c` in it: files are at most two deep.
fn parse(case: &str) -> Result<CasePath> {
    let parts: Vec<String> = case.split("::").map(str::to_owned).collect();
    for part in &parts {
        let fits = part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
        ensure!(
            fits && part.starts_with(|c: char| c.is_ascii_lowercase()),
            "`{part}` is not a name: use lower case letters, digits and `_`"
        );
    }
    match parts.as_slice() {
        [file] => Ok(CasePath { modules: vec![file.clone()], name: UNNAMED.into() }),
        [group, file] => Ok(CasePath { modules: vec![group.clone(), file.clone()], name: UNNAMED.into() }),
        [group, file, name] => {
            Ok(CasePath { modules: vec![group.clone(), file.clone()], name: name.clone() })
        }
        _ => anyhow::bail!("`{case}` is too deep: a case is `group::subject::what_it_proves`"),
    }
}

fn write(cases: &Path, case: &CasePath) -> Result<PathBuf> {
    declare(cases, &case.modules)?;
    let mut file = cases.join(case.modules.join("/"));
    file.set_extension("rs");
    let before = if file.exists() { read(&file)? } else { header(&case.modules) };
    ensure!(
        !before.contains(&format!("fn {}(", case.name)),
        "`{}` is already in `{}`",
        case.name,
        file.display()
    );
    save(&file, &(before + &SKELETON.replace("NAME", &case.name)))?;
    Ok(file)
}

fn header(modules: &[String]) -> String {
    let subject = modules.last().map(|module| module.replace('_', " ")).unwrap_or_default();
    let mut letters = subject.chars();
    let subject = letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect());
    HEADER.replace("SUBJECT", &subject)
}

/// Adds the `mod` lines that a new file needs; an existing file has them.
fn declare(cases: &Path, modules: &[String]) -> Result<()> {
    let mut parent = cases.join("lib.rs");
    let mut directory = cases.to_path_buf();
    for module in modules {
        let text = if parent.exists() { read(&parent)? } else { header(std::slice::from_ref(module)) };
        let line = format!("mod {module};");
        let declared = text.lines().any(|known| known == line || known == format!("pub {line}"));
        if !declared {
            save(&parent, &with_line(&text, &line))?;
        }
        parent = directory.join(format!("{module}.rs"));
        directory = directory.join(module);
    }
    Ok(())
}

/// Adds a `mod` line to a text: in order among the other `mod` lines, or at the end if there are none.
fn with_line(text: &str, line: &str) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    let is_mod = |known: &str| known.starts_with("mod ") || known.starts_with("pub mod ");
    let at = lines
        .iter()
        .position(|known| is_mod(known) && known.trim_start_matches("pub ") > line)
        .or_else(|| lines.iter().rposition(|known| is_mod(known)).map(|last| last + 1))
        .unwrap_or(lines.len());
    lines.insert(at, line);
    lines.join("\n") + "\n"
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read `{}`", path.display()))
}

fn save(path: &Path, text: &str) -> Result<()> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory).with_context(|| format!("cannot make `{}`", directory.display()))?;
    }
    fs::write(path, text).with_context(|| format!("cannot write `{}`", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_has_a_group_a_subject_and_a_name() {
        let parsed = parse("csi::block::is_mapped").expect("a full name");
        assert_eq!(
            parsed,
            CasePath { modules: vec!["csi".into(), "block".into()], name: "is_mapped".into() }
        );
        assert_eq!(parse("csi::block").expect("a file").name, UNNAMED);
        for bad in ["", "Csi", "csi::", "csi::1a", "a::b::c::d", "csi/block"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn module_lines_stay_in_order() {
        assert_eq!(with_line("//! A.\n\nmod a;\nmod c;\n", "mod b;"), "//! A.\n\nmod a;\nmod b;\nmod c;\n");
        assert_eq!(
            with_line("//! A.\n\nmod a;\n\nfn f() {}\n", "mod b;"),
            "//! A.\n\nmod a;\nmod b;\n\nfn f() {}\n"
        );
        assert_eq!(with_line("//! A.\n", "mod b;"), "//! A.\nmod b;\n");
    }

    #[test]
    fn a_second_case_goes_into_the_same_file() {
        let directory = std::env::temp_dir().join(format!("xtask-new-case-{}", std::process::id()));
        let cases = directory.join("cases");
        let first = parse("csi::block::one").expect("a name");
        let second = parse("csi::block::two").expect("a name");
        write(&cases, &first).expect("the first");
        let file = write(&cases, &second).expect("the second");
        let text = read(&file).expect("what was written");
        let twice = write(&cases, &first);
        let parent = read(&cases.join("csi.rs")).expect("the parent");
        let root = read(&cases.join("lib.rs")).expect("the root of the crate");
        fs::remove_dir_all(&directory).expect("what the test made");

        assert!(text.starts_with("//! Block: "), "{text}");
        assert_eq!(text.matches("#[case(").count(), 2);
        assert!(parent.contains("\nmod block;\n"), "{parent}");
        assert!(root.contains("\nmod csi;\n"), "{root}");
        assert!(twice.is_err(), "the same name twice");
    }
}
