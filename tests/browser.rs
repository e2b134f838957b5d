//! `report.html` and the site of the documents in Chromium: nothing runs out of the window, in both themes and also of what
//! is folded, and axe finds nothing. Needs Chromium (`apt install chromium`); axe, if `VOLPROOF_AXE` names its `axe.min.js`
//! (`npm install axe-core`).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tests::{Volproof, has_root};

const WIDTHS: [u32; 3] = [360, 1280, 2000];

/// What is put into a page: it unfolds everything, measures, and tells the page around it.
const MEASURE: &str = r#"<script>
addEventListener("load", async () => {
  for (const each of document.querySelectorAll("details")) each.open = true;
  await new Promise(done => setTimeout(done, 300));
  const wide = [];
  if (document.documentElement.scrollWidth > innerWidth) {
    for (const each of document.querySelectorAll("body *")) {
      if (each.getBoundingClientRect().right > innerWidth + 1) wide.push(each.outerHTML.slice(0, 100));
    }
    wide.push(`${document.documentElement.scrollWidth} px in ${innerWidth}`);
  }
  let faults = [];
  if (typeof axe !== "undefined") {
    const found = await axe.run(document, { resultTypes: ["violations"] });
    faults = found.violations.map(({ id, nodes }) => `${id}: ${nodes[0].html.slice(0, 200)} ${nodes[0].failureSummary}`);
  }
  parent.postMessage({ wide, faults, dark: matchMedia("(prefers-color-scheme: dark)").matches }, "*");
});
</script>"#;

/// A Chromium, if this machine has one.
fn chromium() -> Option<&'static str> {
    let found = ["chromium", "chromium-browser", "google-chrome"].into_iter().find(|name| {
        Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success())
    });
    if found.is_none() {
        println!("skipped: no Chromium looks at the pages: `apt install chromium`");
    }
    found
}

/// The answers of a page in windows of each width, in one theme.
fn look(browser: &str, page: &Path, script: Option<&str>, dark: bool) -> Vec<Value> {
    let directory = page.parent().expect("a page is in a directory");
    let text = fs::read_to_string(page).expect("a page");
    let axe = script.map(|script| format!("<script>{script}</script>")).unwrap_or_default();
    let measured = text.replace("</body>", &format!("{axe}{MEASURE}</body>"));
    assert!(measured.len() > text.len(), "the page has an end");
    fs::write(directory.join("measured.html"), measured).expect("a file");
    let frames = WIDTHS
        .map(|width| format!("<iframe src=measured.html width={width} height=900 style=border:0></iframe>"));
    let around = format!(
        "<!doctype html><pre id=result></pre><script>const all = []; addEventListener('message', event => {{ \
         all.push(event.data); if (all.length === {}) document.querySelector('#result').textContent = \
         JSON.stringify(all); }});</script>{}",
        WIDTHS.len(),
        frames.concat()
    );
    let file = directory.join("around.html");
    fs::write(&file, around).expect("a file");
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--dump-dom"])
        .args(["--virtual-time-budget=30000", "--timeout=60000"])
        .arg(format!("--user-data-dir={}", directory.join("profile").display()))
        .arg(format!("--blink-settings=preferredColorScheme={}", u8::from(!dark)))
        .arg(format!("file://{}", file.display()))
        .output()
        .expect("it can be started");
    let dom = String::from_utf8_lossy(&output.stdout);
    let result = dom.split("<pre id=\"result\">").nth(1).and_then(|rest| rest.split("</pre>").next());
    let result = result.unwrap_or_default().replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    let answers: Vec<Value> = serde_json::from_str(&result)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    assert!(answers.iter().all(|answer| answer["dark"] == dark), "the theme is as asked: {answers:?}");
    answers
}

/// A report with a finding, changes since another run, timelines, a tree of mounts and logs.
fn report(directory: &Path) -> PathBuf {
    let run = |sabotage: &str, name: &str, more: &[&str]| {
        let mut run =
            Volproof::new().args("run --tier host csi::publish::read_only csi::lifecycle::file_system");
        run = run.args(&format!("--sabotage {sabotage} --report")).arg(directory.join(name));
        let ended = more.iter().fold(run, |run, word| run.arg(word)).run();
        assert_eq!(ended.code, Some(1), "{}", ended.told());
    };
    run("publish-creates-file", "before", &[]);
    let before = directory.join("before").display().to_string();
    run("unpublish-leaves-mount", "now", &["--since", &before]);
    let page = directory.join("now/report.html");
    let text = fs::read_to_string(&page).expect("a report");
    assert!(text.contains("class=\"diff tree\""), "mounts that stay are in a tree");
    page
}

fn site(directory: &Path) -> PathBuf {
    crate::site::write(directory);
    directory.join("docs/manifest.html")
}

#[test]
fn pages_fit_each_window_and_keep_the_rules_of_accessibility() {
    let Some(browser) = chromium().filter(|_| has_root()) else { return };
    let axe = std::env::var_os("VOLPROOF_AXE").map(|file| fs::read_to_string(file).expect("axe.min.js"));
    if axe.is_none() {
        println!("skipped in part: VOLPROOF_AXE names no axe.min.js (`npm install axe-core`)");
    }
    let place = tempfile::tempdir().expect("a directory");
    for page in [report(place.path()), site(&place.path().join("site"))] {
        for dark in [false, true] {
            for answer in look(browser, &page, axe.as_deref(), dark) {
                assert_eq!(answer["wide"], Value::Array(vec![]), "{}, dark: {dark}", page.display());
                assert_eq!(answer["faults"], Value::Array(vec![]), "{}, dark: {dark}", page.display());
            }
        }
    }
}
