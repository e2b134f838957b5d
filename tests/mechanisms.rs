//! Each mechanism of the behaviour has a case on the kernel, or an argument (docs/behaviour/13-on-the-kernel.md).

use std::collections::BTreeSet;

use tests::Volproof;

/// The most mechanisms that may be argued away.
const ARGUED: usize = 10;

fn behaviour(name: &str) -> String {
    let path = format!("{}/../docs/behaviour/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The cells of the rows of a table.
fn rows(table: &str) -> impl Iterator<Item = Vec<&str>> {
    let rows = table.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
    rows.map(|row| row.split(" | ").collect::<Vec<_>>()).filter(|cells| cells[0] != "sections")
}

/// The sections of 00 to 09, as the tables write them.
fn sections() -> BTreeSet<String> {
    let files = [
        "00-overview",
        "01-desired-state",
        "02-actual-state",
        "03-reconciler",
        "04-operations",
        "05-csi",
        "06-plugins",
        "07-mount-utils",
        "08-containers",
        "09-controllers",
    ];
    let of_file = |file: &str| -> Vec<String> {
        let text = behaviour(&format!("{file}.md"));
        let heads = text.lines().filter_map(|line| line.strip_prefix("## ")?.split_once(". "));
        heads.map(|(number, _)| format!("{} §{number}", &file[..2])).collect()
    };
    files.into_iter().flat_map(of_file).collect()
}

#[test]
fn each_section_has_a_case_or_an_argument() {
    let document = behaviour("13-on-the-kernel.md");
    let (_, shown) = document.split_once("## Shown by cases").expect("the first table");
    let (shown, argued) = shown.split_once("## Argued").expect("the second table");
    let (argued, others) = argued.split_once("## No mechanism").expect("the third table");
    let mut named = Vec::new();
    for table in [shown, argued, others] {
        named.extend(
            rows(table).flat_map(|cells| cells[0].split(", ").map(str::to_owned).collect::<Vec<_>>()),
        );
    }
    let known: BTreeSet<String> = named.iter().cloned().collect();
    assert_eq!(known, sections());
    assert_eq!(known.len(), named.len(), "a section is named twice: {named:?}");
    let argued = rows(argued).count();
    assert!(argued <= ARGUED, "{argued} mechanisms are argued away");

    let listed = Volproof::new().arg("list").run();
    let listed: BTreeSet<&str> = listed.stdout.split_whitespace().collect();
    let cases = rows(shown).flat_map(|cells| cells[2].split(", ").collect::<Vec<_>>());
    let missing: Vec<&str> =
        cases.map(|case| case.trim_matches('`')).filter(|case| !listed.contains(case)).collect();
    assert_eq!(missing, Vec::<&str>::new(), "there are no such cases");
}
