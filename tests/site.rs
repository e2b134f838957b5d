//! `cargo xtask site`: each page is there, and each link leads to something.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use tests::{built, xtask};

/// The pages below a directory.
fn pages(directory: &Path, found: &mut BTreeMap<PathBuf, String>) {
    for entry in fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            pages(&path, found);
        } else if path.extension().is_some_and(|end| end == "html") {
            let text = fs::read_to_string(&path).expect("a page");
            found.insert(path.canonicalize().expect("it exists"), text);
        }
    }
}

/// The values of an attribute in a page.
fn values<'a>(page: &'a str, attribute: &str) -> BTreeSet<&'a str> {
    page.split(&format!(" {attribute}=\"")).skip(1).filter_map(|rest| rest.split('"').next()).collect()
}

/// Writes the site.
pub(crate) fn write(out: &Path) {
    let output =
        xtask("site").arg("--binary").arg(built()).arg("--out").arg(out).output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn site_has_a_page_of_each_document_and_no_link_to_nowhere() {
    let place = tempfile::tempdir().expect("a directory");
    write(place.path());

    let mut all = BTreeMap::new();
    pages(place.path(), &mut all);
    assert!(all.len() > 30, "{} pages", all.len());
    for (path, page) in &all {
        let directory = path.parent().expect("a page is in a directory");
        for link in values(page, "href").into_iter().chain(values(page, "src")) {
            if link.contains("://") {
                continue;
            }
            let (file, id) = link.split_once('#').unwrap_or((link, ""));
            let target = directory.join(file).canonicalize();
            let target = target.unwrap_or_else(|error| panic!("{}: {link}: {error}", path.display()));
            if let (Some(page), false) = (all.get(&target), id.is_empty()) {
                assert!(values(page, "id").contains(id), "{}: {link}", path.display());
            }
        }
    }
    let index = fs::read_to_string(place.path().join("search-index.js")).expect("the index");
    for word in
        ["csi::publish::read_only_claim_cannot_be_written", "docs/promises.html#drv-055", "expected_failures"]
    {
        assert!(index.contains(word), "{word}");
    }
}
