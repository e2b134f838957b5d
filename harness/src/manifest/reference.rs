//! `docs/manifest.md`, written from the types that read a manifest: `UPDATE_EXPECT=1 cargo test -p harness reference`
//! renews it. Reads its own sources.

use expect_test::expect_file;

const SOURCES: [&str; 6] = [
    include_str!("../manifest.rs"),
    include_str!("volume.rs"),
    include_str!("secrets.rs"),
    include_str!("preparation.rs"),
    include_str!("fixtures.rs"),
    include_str!("expected.rs"),
];

/// The tables of a manifest in the order of the page, with the type of each.
const TABLES: [(&str, &str); 14] = [
    ("The manifest", "Manifest"),
    ("[volume]", "VolumeSettings"),
    ("volume.existing", "ExistingVolume"),
    ("[secrets]", "Secrets"),
    ("[timeouts]", "Timeouts"),
    ("[unknown_ids]", "UnknownIds"),
    ("[guest]", "Guest"),
    ("[kubernetes]", "Kubernetes"),
    ("disks", "Disk"),
    ("volume_groups", "VolumeGroup"),
    ("iscsi_targets", "IscsiTarget"),
    ("[per_case] and [per_run]", "Preparation"),
    ("state", "State"),
    ("[expected_failures]", "ExpectedFailure"),
];

/// The fields of a type: name, type and doc comment.
fn fields(name: &str) -> Vec<(String, String, String)> {
    let head = [format!("pub struct {name} {{"), format!("pub enum {name} {{")];
    let found = SOURCES.iter().find_map(|source| {
        let at = head.iter().find_map(|head| source.split_once(head.as_str()))?;
        Some(at.1.split("\n}").next().unwrap_or_default())
    });
    let (mut fields, mut comment) = (Vec::new(), String::new());
    for line in found.unwrap_or_else(|| panic!("there is no type {name}")).lines().map(str::trim) {
        if let Some(words) = line.strip_prefix("/// ") {
            comment += words;
            comment.push(' ');
        } else if let Some((field, kind)) = line.trim_end_matches(',').split_once(": ") {
            let field = field.trim_start_matches("pub ");
            fields.push((field.to_owned(), kind.to_owned(), std::mem::take(&mut comment)));
        } else if !line.is_empty() && !line.starts_with("#[") {
            let word = snake(line.trim_end_matches(','));
            fields.push((format!("\"{word}\""), String::new(), std::mem::take(&mut comment)));
        }
    }
    fields
}

/// The word for a variant in a manifest.
fn snake(variant: &str) -> String {
    let mut word = String::new();
    for letter in variant.chars() {
        if letter.is_uppercase() && !word.is_empty() {
            word.push('_');
        }
        word.extend(letter.to_lowercase());
    }
    word
}

/// The words for a Rust type on the page.
fn kind(rust: &str) -> String {
    let inner = |outer: &str| rust.strip_prefix(outer).and_then(|rest| rest.strip_suffix('>')).map(kind);
    inner("Option<").or_else(|| inner("Vec<").map(|of| format!("list of {of}"))).unwrap_or_else(|| {
        match rust {
            "String" => "text",
            "PathBuf" => "path",
            "bool" => "true or false",
            "u32" => "number",
            "Size" => "size, such as `64MiB`",
            "Span" => "time, such as `30s`",
            "BTreeMap<String, String>" => "table of texts",
            "BTreeMap<String, ExpectedFailure>" => "table of texts or tables",
            "Day" => "day, such as `2027-03-31`",
            "AccessMode" => "access mode of a PersistentVolume",
            "ExistingVolume" => "text or table",
            "State" => "`shared` or `per_node`",
            "DiskFormat" => "file system",
            _ => "table",
        }
        .to_owned()
    })
}

#[test]
fn reference_has_each_field_of_a_manifest() {
    let mut page = "# The manifest of a driver\n\n\
        What volproof must know about a driver and cannot ask it: `driver.toml`, used with `--driver driver.toml`. \
        `volproof init` writes one with\ncomments. No key is required but `command`, `image` or `socket`; an unknown key is an \
        error that names the nearest one. In texts the words\n`{socket}`, `{endpoint}`, `{node}`, `{state}` and `{root}` \
        in braces are replaced. This page is made from the types that read the manifest.\n"
        .to_owned();
    for (title, name) in TABLES {
        page += &format!("\n## {title}\n\n| key | what it is | |\n|---|---|---|\n");
        for (field, rust, comment) in fields(name) {
            let field = field.trim_matches('"');
            let kind = if rust.is_empty() { "value".to_owned() } else { kind(&rust) };
            page += &format!("| `{field}` | {kind} | {} |\n", comment.trim().replace('|', "\\|"));
        }
    }
    expect_file!["../../../docs/manifest.md"].assert_eq(&page);
}
