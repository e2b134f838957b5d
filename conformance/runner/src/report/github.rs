//! Annotations that GitHub shows beside the lines of a pull request.
//!
//! The annotation stands on the line of the case: the file is ours, but it is what the reader can open.

use std::io::Write;

use super::Reporter;
use super::junit::headline;
use super::line::label;
use crate::event::{CaseReport, Event};

/// Writes workflow commands between the lines of another reporter.
pub struct Annotations<W>(pub W);

impl<W: Write> Reporter for Annotations<W> {
    fn report(&mut self, event: &Event) -> anyhow::Result<()> {
        if let Event::CaseFinished(case) = event
            && case.status.is_bad()
        {
            writeln!(self.0, "{}", annotation(case))?;
            self.0.flush()?;
        }
        Ok(())
    }
}

fn annotation(case: &CaseReport) -> String {
    let at = case.breakage.as_ref().map_or(&case.at, |broken| &broken.at);
    let title = format!("{} {}", label(case.status), case.id);
    format!(
        "::error file={},line={},title={}::{}",
        property(&at.file),
        at.line,
        property(&title),
        data(&format!("{}\n{}", headline(case), case.again))
    )
}

/// What follows the second `::`: only these three would end it.
fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// A property's value: commas and colons separate properties.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Status;

    #[test]
    fn end_of_an_annotation_is_escaped() {
        let mut case = CaseReport::sample("csi::publish::a", Status::Leaked);
        case.left_behind = vec!["100% of\nit".into()];
        expect_test::expect!["::error file=conformance/cases/src/csi/block.rs,line=12,title=LEAK csi%3A%3Apublish%3A%3Aa::left behind: 100%25 of%0Ait%0Avolproof run csi::publish::a"]
            .assert_eq(&annotation(&case));
    }
}
