//! `cargo xtask nightly`: every kernel, every case, in guests; one JUnit file a kernel and one matrix of all.
//!
//! Writes below `target/xtask/nightly`: `KERNEL/` as `volproof run --report` does, `summary.md` and `matrix.json`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::flags::Nightly;
use crate::packages::{self, Wanted};
use crate::workspace::{NOT_PREPARED, build_volproof, root, status, target_directory};

/// The sign for a status in a summary. Another status is shown by its name.
const SIGNS: [(&str, &str); 4] = [("passed", "✓"), ("skipped_host", "–"), ("skipped_driver", "–"), ("", " ")];

/// The result on a kernel.
#[derive(Debug, Default)]
struct Row {
    kernel: String,
    exit_code: Option<i32>,
    seconds: f64,
    /// The status of each case.
    cases: BTreeMap<String, String>,
}

pub(crate) fn run(flags: Nightly) -> Result<ExitCode> {
    if let Err(code) = packages::prepare(flags.no_install, Some(Wanted::ForGuests))? {
        return Ok(code);
    }
    let Some(volproof) = build_volproof()? else { return Ok(ExitCode::from(NOT_PREPARED)) };
    let directory = target_directory()?.join("xtask/nightly");
    // Yesterday's results must never be taken for today's.
    if directory.exists() {
        fs::remove_dir_all(&directory).with_context(|| format!("cannot remove `{}`", directory.display()))?;
    }
    fs::create_dir_all(&directory).with_context(|| format!("cannot create `{}`", directory.display()))?;
    let kernels = match flags.kernel.is_empty() {
        true => kernels(&fs::read_to_string(root().join("vm-images/images.toml"))?),
        false => flags.kernel.clone(),
    };
    let names: Vec<&String> = kernels.iter().filter(|kernel| !kernel.ends_with(".deb")).collect();
    // One that cannot be fetched has a row all the same: its run says what is missing.
    let _ = status(Command::new(&volproof).args(["vm", "fetch"]).args(names))?;
    let rows: Vec<Row> = kernels
        .iter()
        .map(|kernel| row_of_kernel(&volproof, kernel, &directory, &flags))
        .collect::<Result<_>>()?;
    let summary = summary(&rows);
    fs::write(directory.join("summary.md"), &summary).context("cannot write the summary")?;
    fs::write(directory.join("matrix.json"), format!("{:#}\n", matrix(&rows)))
        .context("cannot write the matrix")?;
    println!("\n{summary}\n{}", directory.join("summary.md").display());
    Ok(ExitCode::from(verdict(&rows)))
}

/// The names of all kernels that guests can be booted with, the default first.
fn kernels(images: &str) -> Vec<String> {
    let named = images.lines().filter_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'));
    named.map(str::to_owned).collect()
}

/// How long a case may take in a guest that is emulated, beside other work of the machine at night.
const PATIENCE: [&str; 2] = ["--timeout", "4m"];

fn row_of_kernel(volproof: &Path, kernel: &str, directory: &Path, flags: &Nightly) -> Result<Row> {
    let name = Path::new(kernel).file_name().unwrap_or_default().to_string_lossy().into_owned();
    eprintln!("\n{:>12} {name}", "Kernel");
    let report = directory.join(&name);
    let began = Instant::now();
    let chosen = flags.args.iter().any(|word| word.to_string_lossy().starts_with(PATIENCE[0]));
    let ended = status(
        Command::new(volproof)
            .args(["run", "--tier", "vm", "--kernel", kernel, "--report"])
            .arg(&report)
            .args(if chosen { &[][..] } else { &PATIENCE })
            .args(&flags.args)
            .env("VOLPROOF_AGAIN", "cargo xtask conformance"),
    )?;
    let results = fs::read_to_string(report.join("results.json")).ok();
    let results: Value = results.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
    Ok(Row {
        kernel: name,
        exit_code: ended.code(),
        seconds: began.elapsed().as_secs_f64(),
        cases: cases(&results),
    })
}

fn cases(results: &Value) -> BTreeMap<String, String> {
    let text = |case: &Value, key: &str| case[key].as_str().unwrap_or_default().to_owned();
    let listed = results["cases"].as_array().into_iter().flatten();
    listed.map(|case| (text(case, "id"), text(case, "status"))).collect()
}

/// A failed case counts most; a kernel on which nothing could be done must not look like success.
fn verdict(rows: &[Row]) -> u8 {
    let has = |wanted: &[Option<i32>]| rows.iter().any(|row| wanted.contains(&row.exit_code));
    if has(&[Some(130)]) {
        130
    } else if has(&[Some(1)]) {
        1
    } else if rows.is_empty() || rows.iter().any(|row| row.exit_code != Some(0)) {
        NOT_PREPARED
    } else {
        0
    }
}

fn matrix(rows: &[Row]) -> Value {
    let row = |row: &Row| {
        json!({
            "kernel": row.kernel,
            "exit_code": row.exit_code,
            "seconds": (row.seconds * 10.0).round() / 10.0,
            "cases": row.cases,
        })
    };
    json!({ "version": 1, "kernels": rows.iter().map(row).collect::<Vec<_>>() })
}

fn summary(rows: &[Row]) -> String {
    let mut out = String::from(
        "# Every kernel, every case\n\n| kernel | passed | skipped | other | time | exit |\n|---|--:|--:|--:|--:|--:|\n",
    );
    for row in rows {
        let count =
            |wanted: &dyn Fn(&str) -> bool| row.cases.values().filter(|status| wanted(status)).count();
        let (passed, skipped) =
            (count(&|status| status == "passed"), count(&|status| status.starts_with("skipped")));
        let other = row.cases.len() - passed - skipped;
        let exit = row.exit_code.map_or("signal".to_owned(), |code| code.to_string());
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "| {} | {passed} | {skipped} | {other} | {:.0} s | {exit} |",
            row.kernel, row.seconds
        );
    }
    let all: BTreeSet<&String> = rows.iter().flat_map(|row| row.cases.keys()).collect();
    let heads: Vec<&str> = rows.iter().map(|row| row.kernel.as_str()).collect();
    let _ = writeln!(out, "\n| case | {} |\n|---|{}", heads.join(" | "), ":-:|".repeat(rows.len()));
    for case in all {
        let signs: Vec<&str> = rows
            .iter()
            .map(|row| {
                let status = row.cases.get(case).map_or("", String::as_str);
                SIGNS.iter().find(|(name, _)| *name == status).map_or(status, |(_, sign)| sign)
            })
            .collect();
        let _ = writeln!(out, "| `{case}` | {} |", signs.join(" | "));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(kernel: &str, exit_code: i32, cases: &[(&str, &str)]) -> Row {
        let cases = cases.iter().map(|(id, status)| ((*id).to_owned(), (*status).to_owned())).collect();
        Row { kernel: kernel.to_owned(), exit_code: Some(exit_code), seconds: 61.4, cases }
    }

    #[test]
    fn the_kernels_are_those_of_the_table() {
        let table = "[[kernel]]\nname = \"6.1\"\npackages = [\n    { name = \"linux\" },\n]\n[[kernel]]\nname = \"5.10\"\n";
        assert_eq!(kernels(table), ["6.1", "5.10"]);
    }

    #[test]
    fn a_kernel_on_which_nothing_ran_is_no_success() {
        let good = || row("6.1", 0, &[("a", "passed")]);
        assert_eq!(verdict(&[good()]), 0);
        assert_eq!(verdict(&[]), NOT_PREPARED);
        assert_eq!(verdict(&[good(), row("5.10", 3, &[])]), NOT_PREPARED);
        assert_eq!(verdict(&[row("6.12", 4, &[]), row("5.10", 1, &[("a", "failed")])]), 1);
    }

    #[test]
    fn the_matrix_shows_each_case_on_each_kernel() {
        let rows =
            [row("6.1", 0, &[("a", "passed"), ("b", "skipped_host")]), row("5.10", 1, &[("a", "failed")])];
        let summary = summary(&rows);
        assert!(summary.contains("| 6.1 | 1 | 1 | 0 | 61 s | 0 |"), "{summary}");
        assert!(summary.contains("| `a` | ✓ | failed |\n| `b` | – |   |\n"), "{summary}");
        assert_eq!(matrix(&rows)["kernels"][1]["cases"]["a"], "failed");
    }
}
