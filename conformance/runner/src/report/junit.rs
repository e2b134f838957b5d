//! `junit.xml`, for CI systems that read only this format.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use harness::private;
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

use super::line::{Details, Palette, label};
use crate::event::{CaseReport, RunRecord, Status};

/// Writes `junit.xml` into a report directory.
pub fn write(run: &RunRecord, directory: &Path) -> anyhow::Result<()> {
    let path = directory.join("junit.xml");
    let text = render(run)?;
    private::write(&path, text).with_context(|| format!("cannot write `{}`", path.display()))
}

/// One test suite for each module, as viewers of these files group them.
pub fn render(run: &RunRecord) -> anyhow::Result<String> {
    let mut report = Report::new(format!("volproof {}", run.header.driver));
    report.set_time(Duration::from_secs_f64(run.seconds));
    let mut modules: Vec<&str> = run.cases.iter().map(module).collect();
    modules.sort_unstable();
    modules.dedup();
    for name in modules {
        let mut suite = TestSuite::new(name);
        for case in run.cases.iter().filter(|case| module(case) == name) {
            suite.add_test_case(test_case(case));
        }
        report.add_test_suite(suite);
    }
    Ok(report.to_string()?)
}

fn module(case: &CaseReport) -> &str {
    case.id.as_str().rsplit_once("::").map_or("", |(module, _)| module)
}

fn test_case(case: &CaseReport) -> TestCase {
    let name = case.id.as_str().rsplit("::").next().unwrap_or_default();
    let mut test = TestCase::new(name, status(case));
    test.set_classname(module(case)).set_time(Duration::from_secs_f64(case.seconds));
    test.extra.insert("file".into(), case.at.file.as_str().into());
    test.extra.insert("line".into(), case.at.line.to_string().into());
    test
}

fn status(case: &CaseReport) -> TestCaseStatus {
    let kind = match case.status {
        Status::Passed => return TestCaseStatus::success(),
        Status::SkippedDriver | Status::SkippedHost | Status::Xfail => {
            let mut status = TestCaseStatus::skipped();
            status.set_message(case.reasons.join("; ")).set_type(case.status.to_string());
            return status;
        }
        Status::Failed | Status::Leaked | Status::DriverExited | Status::Xpass => NonSuccessKind::Failure,
        Status::Error => NonSuccessKind::Error,
    };
    let mut status = TestCaseStatus::non_success(kind);
    status.set_type(case.status.to_string()).set_message(headline(case));
    status.set_description(Details { palette: Palette::plain(), case, shown: &[] }.to_string());
    status
}

/// One sentence about a case that did not pass, for lists of failures.
pub(super) fn headline(case: &CaseReport) -> String {
    if let Some(finding) = case.findings.first() {
        return finding.sentence.clone();
    }
    if let Some(cause) = case.breakage.as_ref().and_then(|broken| broken.cause.first()) {
        return cause.clone();
    }
    if case.status == Status::Xpass {
        return format!("passed, though it was expected to fail: {}", case.reasons.join("; "));
    }
    match case.left_behind.first() {
        Some(first) => format!("left behind: {first}"),
        None => label(case.status).to_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use crate::report::human::tests::full_run;

    #[test]
    fn every_status_is_success_failure_error_or_skipped() {
        expect![[r#"
            <?xml version="1.0" encoding="UTF-8"?>
            <testsuites name="volproof block.csi.example.com" tests="10" failures="5" errors="1" time="41.700">
                <testsuite name="a" tests="9" disabled="3" errors="1" failures="4">
                    <testcase name="passed" classname="a" time="0.314" file="conformance/cases/src/csi/block.rs" line="12">
                    </testcase>
                    <testcase name="failed" classname="a" time="0.314" file="conformance/cases/src/csi/block.rs" line="12">
                        <failure message="fail" type="failed">  again  volproof run a::failed
            </failure>
                    </testcase>
                    <testcase name="leaked" classname="a" time="0.314" file="conformance/cases/src/csi/block.rs" line="12">
                        <failure message="NodeUnpublishVolume returned OK, but its target is still mounted." type="leaked">  NodeUnpublishVolume returned OK, but its target is still mounted.
              DRV-031, CSI: NodeUnpublishVolume undoes the work of NodePublishVolume.

              again  volproof run a::leaked
            </failure>
                    </testcase>
                    <testcase name="error" classname="a" time="0.314" file="conformance/cases/src/csi/block.rs" line="12">
                        <error message="error" type="error">  again  volproof run a::error
            </error>
                    </testcase>
                    <testcase name="driver_exited" classname="a" time="0.314" file="conformance/cases/src/csi/block.rs" line="12">
                        <failure message="driver exit" type="driver_exited">  again  volproof run a::driver_exited
            </failure>
                    </testcase>
                    <testcase name="xpass" classname="a" time="0.314" file="conformance/cases/src/csi/block.rs" line="12">
                        <failure message="passed, though it was expected to fail: " type="xpass">  again  volproof run a::xpass
            </failure>
                    </testcase>
                    <testcase name="xfail" classname="a" time="0.314" file="conformance/cases/src/csi/block.rs" line="12">
                        <skipped message="" type="xfail"/>
                    </testcase>
                    <testcase name="skipped_driver" classname="a" time="0.000" file="conformance/cases/src/csi/block.rs" line="12">
                        <skipped message="does not report GET_VOLUME_STATS" type="skipped_driver"/>
                    </testcase>
                    <testcase name="skipped_host" classname="a" time="0.000" file="conformance/cases/src/csi/block.rs" line="12">
                        <skipped message="" type="skipped_host"/>
                    </testcase>
                </testsuite>
                <testsuite name="csi::block" tests="1" disabled="0" errors="0" failures="1">
                    <testcase name="teardown_is_the_reverse_of_setup" classname="csi::block" time="2.410" file="conformance/cases/src/csi/block.rs" line="12">
                        <failure message="NodeUnpublishVolume returned OK, but its target is still mounted." type="failed">  after `web.stop()`  conformance/cases/src/csi/block.rs:31

                    unlock &lt;map:disk/web&gt;
                    csi    Unpublish disk web
                -   umount &lt;publish:disk/web&gt;

              the first event  pod/web FailedMapVolume: &lt;publish:disk/web&gt; is no device

              NodeUnpublishVolume returned OK, but its target is still mounted.
              DRV-031, CSI: NodeUnpublishVolume undoes the work of NodePublishVolume.

              left behind
                bind   &lt;publish:disk/web&gt;  =  &lt;device:disk&gt;

              logs   out/cases/csi::block::teardown_is_the_reverse_of_setup/   driver.log  journal.txt
              again  volproof run csi::block::teardown_is_the_reverse_of_setup
              look   volproof enter csi::block::teardown_is_the_reverse_of_setup
            </failure>
                    </testcase>
                </testsuite>
            </testsuites>
        "#]].assert_eq(&super::render(&full_run()).expect("it renders"));
    }
}
