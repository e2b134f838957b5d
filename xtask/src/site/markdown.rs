//! A document: its title, its sections for the search, and its HTML with links between the pages of the site.

use std::collections::{BTreeMap, BTreeSet};

use pulldown_cmark::{CowStr, Event, HeadingLevel, Options, Parser, Tag, TagEnd, html};

/// The documents of the site, by their paths in the repository.
#[derive(Debug)]
pub(super) struct Targets {
    pub(super) documents: BTreeSet<String>,
}

/// A page of the site.
#[derive(Debug)]
pub(super) struct Document {
    /// In the repository: `docs/ci.md`.
    pub(super) path: String,
    pub(super) title: String,
    pub(super) html: String,
    pub(super) sections: Vec<Section>,
}

/// The text below a heading, as the search finds it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) id: String,
    pub(super) heading: String,
    pub(super) text: String,
}

impl Document {
    pub(super) fn read(path: &str, text: &str, targets: &Targets) -> Self {
        let mut events: Vec<Event> = Parser::new_ext(text, options()).collect();
        let sections = name_headings(&mut events);
        for event in &mut events {
            if let Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) = event {
                *dest_url = CowStr::from(targets.url(path, dest_url));
            }
        }
        let mut html = String::new();
        html::push_html(&mut html, events.into_iter().flat_map(in_scroller));
        // A cell above the names of rows is no heading.
        let html = html.replace("<th></th>", "<td></td>");
        let title = sections.iter().find(|section| !section.heading.is_empty());
        let title = title.map_or(path, |section| &section.heading).to_owned();
        Self { path: path.to_owned(), title, html, sections }
    }

    /// The page's file below the root of the site.
    pub(super) fn url(&self) -> String {
        page(&self.path)
    }
}

fn options() -> Options {
    Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH
}

/// A wide table scrolls by itself, also by the keyboard.
fn in_scroller(event: Event) -> Vec<Event> {
    match event {
        Event::Start(Tag::Table(_)) => {
            vec![Event::Html("<div class=table tabindex=0>".into()), event]
        }
        Event::End(TagEnd::Table) => vec![event, Event::Html("</div>".into())],
        event => vec![event],
    }
}

/// Gives each heading the id that GitHub gives it, and returns the sections that they begin.
fn name_headings(events: &mut [Event]) -> Vec<Section> {
    let mut sections = vec![Section::default()];
    let mut used: BTreeMap<String, usize> = BTreeMap::new();
    let mut heading: Option<usize> = None;
    for at in 0..events.len() {
        match &events[at] {
            Event::Start(Tag::Heading { .. }) => {
                sections.push(Section::default());
                heading = Some(at);
            }
            Event::End(TagEnd::Heading(_)) => {
                let section = sections.last_mut().expect("there is always one");
                section.heading = std::mem::take(&mut section.text).trim().to_owned();
                let id = slug(&section.heading);
                let again = used.entry(id.clone()).or_default();
                section.id = if *again == 0 { id } else { format!("{id}-{again}") };
                *again += 1;
                let named = section.id.clone();
                if let Some(Event::Start(Tag::Heading { id, .. })) = heading.take().map(|at| &mut events[at])
                {
                    *id = Some(named.into());
                }
            }
            Event::Text(text) | Event::Code(text) => {
                sections.last_mut().expect("there is always one").text += text;
            }
            Event::SoftBreak | Event::HardBreak | Event::End(_) => {
                sections.last_mut().expect("there is always one").text.push(' ');
            }
            _ => {}
        }
    }
    sections.retain(|section| !section.heading.is_empty() || !section.text.trim().is_empty());
    sections
}

/// A heading's id as GitHub makes it.
pub(super) fn slug(heading: &str) -> String {
    let kept = heading.to_lowercase();
    kept.chars()
        .filter(|letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_'))
        .map(|letter| if letter == ' ' { '-' } else { letter })
        .collect()
}

/// The files of this repository that a document links to.
pub(super) fn links(path: &str, text: &str) -> Vec<String> {
    let links = Parser::new_ext(text, options()).filter_map(|event| match event {
        Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => Some(dest_url),
        _ => None,
    });
    links.filter_map(|link| resolve(path, &link)).map(|(path, _)| path).collect()
}

/// The links of a list, with their texts and the heading above each: the order of the sidebar.
pub(super) fn index(path: &str, text: &str) -> Vec<(String, String)> {
    let (mut found, mut heading, mut in_heading) = (Vec::new(), String::new(), false);
    for event in Parser::new_ext(text, options()) {
        match event {
            Event::Start(Tag::Heading { level: HeadingLevel::H2, .. }) => {
                (heading, in_heading) = (String::new(), true);
            }
            Event::End(TagEnd::Heading(_)) => in_heading = false,
            Event::Text(text) if in_heading => heading += &text,
            Event::Start(Tag::Link { dest_url, .. }) => {
                found.extend(resolve(path, &dest_url).map(|(path, _)| (heading.clone(), path)));
            }
            _ => {}
        }
    }
    found
}

/// The path in the repository that a link of a document leads to, and the fragment with its `#`. A link to elsewhere has
/// none.
fn resolve(document: &str, link: &str) -> Option<(String, String)> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (path, fragment) =
        link.split_once('#').map_or((link, String::new()), |(path, id)| (path, format!("#{id}")));
    if path.is_empty() {
        return Some((document.to_owned(), fragment));
    }
    let directory = document.rsplit_once('/').map_or("", |(directory, _)| directory);
    let mut parts: Vec<&str> = directory.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    Some((parts.join("/"), fragment))
}

/// The page of a document.
fn page(path: &str) -> String {
    match path.strip_suffix("README.md") {
        Some(directory) => format!("{directory}index.html"),
        None => format!("{}.html", path.strip_suffix(".md").unwrap_or(path)),
    }
}

/// Where a file or a directory that is no document is found in the site: a text that browsers show.
pub(super) fn copied(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or(path);
    match name.rsplit_once('.') {
        Some((_, "svg" | "png" | "html")) => path.to_owned(),
        Some(_) => format!("{path}.txt"),
        None if crate::workspace::root().join(path).is_dir() => format!("{path}/index.html"),
        None => format!("{path}.txt"),
    }
}

impl Targets {
    /// A link of a document as one of its page.
    fn url(&self, document: &str, link: &str) -> String {
        let Some((path, fragment)) = resolve(document, link) else { return link.to_owned() };
        let readme = format!("{path}/README.md");
        let target = if self.documents.contains(&path) {
            page(&path)
        } else if self.documents.contains(readme.trim_start_matches('/')) {
            page(readme.trim_start_matches('/'))
        } else {
            copied(&path)
        };
        up(document) + &target + &fragment
    }
}

/// From a page to the root of the site.
pub(super) fn up(document: &str) -> String {
    "../".repeat(document.matches('/').count())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &str, text: &str) -> Document {
        let documents = ["README.md", "docs/ci.md", "docs/drivers/README.md"].map(str::to_owned).into();
        Document::read(path, text, &Targets { documents })
    }

    #[test]
    fn links_between_documents_are_links_between_pages() {
        let text = "[a](ci.md#the-step) [b](../README.md) [c](drivers/) [d](https://csi.example/x.md) [e](#here) \
                    [f](../examples/claim.yaml)";
        let html = read("docs/ci.md", text).html;
        for link in [
            "../docs/ci.html#the-step",
            "../index.html",
            "../docs/drivers/index.html",
            "https://csi.example/x.md",
            "../docs/ci.html#here",
            "../examples/claim.yaml.txt",
        ] {
            assert!(html.contains(&format!("\"{link}\"")), "{link} in {html}");
        }
    }

    #[test]
    fn headings_have_the_ids_of_github_and_begin_sections() {
        let document =
            read("docs/ci.md", "# A `b`, c's d\n\ntext\n\n## Again\n\n## Again\n\n`DRV-001`: more\n");
        assert_eq!(document.title, "A b, c's d");
        let ids: Vec<&str> = document.sections.iter().map(|section| section.id.as_str()).collect();
        assert_eq!(ids, ["a-b-cs-d", "again", "again-1"]);
        assert!(document.sections[2].text.contains("DRV-001: more"), "{:?}", document.sections);
        assert!(document.html.contains("<h2 id=\"again-1\">"), "{}", document.html);
    }

    #[test]
    fn page_of_an_index_is_the_one_of_its_directory() {
        assert_eq!(page("README.md"), "index.html");
        assert_eq!(page("docs/drivers/README.md"), "docs/drivers/index.html");
        assert_eq!(page("docs/ci.md"), "docs/ci.html");
        assert_eq!(up("docs/drivers/README.md"), "../../");
    }

    #[test]
    fn index_has_the_heading_above_each_link() {
        let list =
            index("docs/README.md", "# D\n\n## Begin\n\n- [a](ci.md): x\n\n## More\n\n- [b](../README.md)\n");
        let expected = [("Begin", "docs/ci.md"), ("More", "README.md")];
        assert_eq!(list, expected.map(|(heading, path)| (heading.to_owned(), path.to_owned())));
    }
}
