//! Stories that differ, written into the source they stand in.

use std::path::{Path, PathBuf};

use testbed::message::Expectation;

/// Rewrites the literal of an `expect!` in its source file.
pub(super) fn write(expectation: Expectation) -> anyhow::Result<()> {
    let Some(file) = source_file(&expectation.file) else {
        anyhow::bail!("cannot find `{}`: run this from the workspace it was built in", expectation.file);
    };
    // The crate keeps the place by reference to constants; a run writes each at most once.
    let constant = |text: String| -> &'static str { Box::leak(text.into_boxed_str()) };
    let position = expect_test::Position {
        file: constant(file.to_string_lossy().into_owned()),
        line: expectation.line,
        column: expectation.column,
    };
    expect_test::Expect { position, data: constant(expectation.data), indent: true }
        .assert_eq(&expectation.actual);
    Ok(())
}

/// A path below some workspace, as the compiler writes it: looked for from here upwards, then from where this
/// crate was built.
fn source_file(path: &str) -> Option<PathBuf> {
    let here = std::env::current_dir().unwrap_or_default();
    let starts = [here.as_path(), Path::new(env!("CARGO_MANIFEST_DIR"))];
    let candidates = starts.iter().flat_map(|start| start.ancestors()).map(|above| above.join(path));
    candidates.into_iter().find(|candidate| candidate.is_file())
}
