//! The files of the site: pages with a sidebar, the style, the search and its index.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::json;

use super::markdown::{self, Document, up};
use super::{ROOTS, generated};
use crate::workspace::root;

const STYLE: &str = include_str!("style.css");
const SEARCH: &str = include_str!("search.js");

pub(super) fn write(out: &Path, documents: &[Document]) -> Result<()> {
    let sidebar = sidebar(documents)?;
    for document in documents {
        let file = out.join(document.url());
        fs::create_dir_all(file.parent().context("a page is in a directory")?)?;
        fs::write(&file, page(document, documents, &sidebar))
            .with_context(|| format!("cannot write `{}`", file.display()))?;
    }
    fs::write(out.join("style.css"), STYLE)?;
    fs::write(out.join("search.js"), SEARCH)?;
    fs::write(out.join("search-index.js"), index(documents))?;
    Ok(())
}

/// The pages by their headings in the sidebar. Pages that the index of `docs/` does not name are reached by links.
fn sidebar(documents: &[Document]) -> Result<Vec<(String, Vec<String>)>> {
    let path = ROOTS[1];
    let text = fs::read_to_string(root().join(path)).with_context(|| format!("cannot read `{path}`"))?;
    let mut parts: Vec<(String, Vec<String>)> = vec![(String::new(), vec![ROOTS[0].to_owned()])];
    for (heading, path) in markdown::index(path, &text) {
        let is_page = documents.iter().any(|document| document.path == path);
        let is_new = !parts.iter().any(|(_, pages)| pages.contains(&path));
        match parts.last_mut().filter(|(last, _)| *last == heading) {
            Some((_, pages)) if is_page && is_new => pages.push(path),
            None if is_page && is_new => parts.push((heading, vec![path])),
            _ => {}
        }
    }
    parts.push(("From the program".to_owned(), generated::PAGES.map(str::to_owned).into()));
    Ok(parts)
}

fn page(document: &Document, documents: &[Document], sidebar: &[(String, Vec<String>)]) -> String {
    let up = up(&document.path);
    let mut list = String::new();
    // Writing to a string cannot fail, so the results of `write!` are ignored.
    for (heading, paths) in sidebar {
        if !heading.is_empty() {
            let _ = write!(list, "<p>{}</p>", escape(heading));
        }
        list += "<ul>";
        for other in paths.iter().filter_map(|path| documents.iter().find(|other| other.path == *path)) {
            let here = if other.path == document.path { " aria-current=page" } else { "" };
            let _ = write!(list, "<li><a href=\"{up}{}\"{here}>{}</a>", other.url(), escape(&other.title));
        }
        list += "</ul>";
    }
    format!(
        "<!doctype html>\n<html lang=en><head><meta charset=utf-8><meta name=viewport content=\"width=device-width, \
         initial-scale=1\"><title>{title}: volproof</title><link rel=stylesheet href=\"{up}style.css\"></head>\n\
         <body data-up=\"{up}\"><nav aria-label=pages><details open><summary>Pages</summary>{list}</details></nav>\n\
         <main><form role=search hidden><input id=search type=search placeholder=\"search all pages\" aria-label=\"search \
         all pages\"></form><ol id=found aria-label=\"what the search found\"></ol>\n<article>{html}</article></main>\n\
         <script src=\"{up}search-index.js\"></script><script src=\"{up}search.js\"></script></body></html>\n",
        title = escape(&document.title),
        html = document.html,
    )
}

/// A page that lists the files of a directory.
pub(super) fn listing(directory: &str, files: &[String]) -> String {
    let items: Vec<String> = files
        .iter()
        .map(|file| format!("<li><a href=\"{}\">{}</a>", escape(&markdown::copied(file)), escape(file)))
        .collect();
    let directory = escape(directory);
    format!(
        "<!doctype html>\n<html lang=en><head><meta charset=utf-8><title>{directory}</title></head>\n\
         <body><h1>{directory}</h1><ul>{}</ul></body></html>\n",
        items.concat()
    )
}

/// The text of all sections, as a script: a browser reads it from a disk as well.
fn index(documents: &[Document]) -> String {
    let mut entries = Vec::new();
    for document in documents {
        for section in &document.sections {
            let anchor = if section.id.is_empty() { String::new() } else { format!("#{}", section.id) };
            let text = section.text.split_whitespace().collect::<Vec<_>>().join(" ");
            entries.push(json!([document.title, section.heading, document.url() + &anchor, text]));
        }
    }
    format!("const sections = {};\n", json!(entries))
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
