//! Docs that fit the code and each other.

use crate::assert_tidy;
use crate::tree::{File, files, read, root};
use std::collections::{BTreeMap, BTreeSet};

/// Code, HTTP status and exit code, out of the list in `api`: `Variant = "CODE", 409, 75;`.
fn codes(list: &str) -> BTreeMap<String, (String, String)> {
    let entries = list.lines().filter_map(|line| line.trim().strip_suffix(';')?.split_once(" = \""));
    entries
        .filter_map(|(_, entry)| {
            let (code, numbers) = entry.split_once("\", ")?;
            let (status, exit) = numbers.split_once(", ")?;
            Some((code.to_owned(), (status.to_owned(), exit.to_owned())))
        })
        .collect()
}

fn misdocumented(list: &str, pages: &BTreeMap<String, String>) -> Vec<String> {
    let codes = codes(list);
    let mut complaints = Vec::new();
    for (code, (status, exit)) in &codes {
        let head = format!("# {code}\n\nHTTP {status} · exit code {exit}\n");
        match pages.get(code) {
            None => complaints.push(format!("docs/errors/{code}.md: missing")),
            Some(page) if !page.starts_with(&head) => {
                complaints.push(format!("docs/errors/{code}.md: must start with\n{head}"))
            }
            Some(_) => {}
        }
    }
    let strays = pages.keys().filter(|page| !codes.contains_key(*page));
    complaints.extend(strays.map(|page| format!("docs/errors/{page}.md: there is no such code")));
    complaints
}

#[test]
fn every_error_code_has_its_page_and_every_page_its_code() {
    let list = "    A = \"A_CODE\", 409, 75;\n    B = \"B_CODE\", 404, 69;";
    let page = |text: &str| text.to_owned();
    let good = [
        ("A_CODE".into(), page("# A_CODE\n\nHTTP 409 · exit code 75\n")),
        ("B_CODE".into(), page("# B_CODE\n\nHTTP 404 · exit code 69\n")),
    ];
    assert!(misdocumented(list, &good.into()).is_empty());
    let bad = [("A_CODE".into(), page("# A_CODE\n\nHTTP 400 · exit code 75\n")), ("C_CODE".into(), page(""))];
    assert_eq!(misdocumented(list, &bad.into()).len(), 3);

    let list = read("crates/api/src/error.rs");
    assert!(codes(&list).len() > 10, "the list of codes is no longer written as this rule reads it");
    let pages = files().into_iter().filter_map(|file| {
        let name = file.path.strip_prefix("docs/errors/")?.strip_suffix(".md")?;
        (name != "README").then(|| (name.to_owned(), file.text.clone()))
    });
    assert_tidy(misdocumented(&list, &pages.collect()));
}

/// The relative links of a page: paths from the tree's root, and what comes after a `#`.
fn links(path: &str, text: &str) -> Vec<(String, String)> {
    let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory);
    let targets = text.match_indices("](").filter_map(|(start, _)| text[start + 2..].split_once(')'));
    targets
        .map(|(target, _)| target)
        .filter(|target| !target.contains("://") && !target.contains(char::is_whitespace))
        .map(|target| {
            let (target, heading) = target.split_once('#').unwrap_or((target, ""));
            if target.is_empty() {
                return (path.to_owned(), heading.to_owned());
            }
            let mut parts: Vec<&str> = directory.split('/').filter(|part| !part.is_empty()).collect();
            for part in target.split('/') {
                match part {
                    "" | "." => {}
                    ".." => drop(parts.pop()),
                    part => parts.push(part),
                }
            }
            (parts.join("/"), heading.to_owned())
        })
        .collect()
}

/// Whether a page has a heading that is linked to by this name: lower case, dashes for spaces, no punctuation.
fn has_heading(text: &str, name: &str) -> bool {
    let headings =
        text.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    headings
        .map(|heading| {
            let kept =
                heading.chars().filter(|character| character.is_alphanumeric() || " -_".contains(*character));
            kept.collect::<String>().to_lowercase().replace(' ', "-")
        })
        .any(|heading| heading == name)
}

fn unreachable_pages(start: &str, pages: &BTreeMap<String, String>) -> Vec<String> {
    let mut seen = BTreeSet::from([start.to_owned()]);
    let mut next = vec![start.to_owned()];
    while let Some(page) = next.pop() {
        let text = pages.get(&page).map_or("", String::as_str);
        for link in
            links(&page, text).into_iter().map(|(link, _)| link).filter(|link| pages.contains_key(link))
        {
            if seen.insert(link.clone()) {
                next.push(link);
            }
        }
    }
    pages
        .keys()
        .filter(|page| !seen.contains(*page))
        .map(|page| format!("{page}: no way leads here from {start}"))
        .collect()
}

#[test]
fn every_page_of_the_manual_is_reached_from_its_index() {
    let mut pages = BTreeMap::from([
        ("docs/README.md".to_owned(), "[a](a.md) [b](sub/README.md#x)".to_owned()),
        ("docs/a.md".to_owned(), String::new()),
        ("docs/sub/README.md".to_owned(), "[c](c.md) [up](../a.md)".to_owned()),
        ("docs/sub/c.md".to_owned(), String::new()),
    ]);
    assert!(unreachable_pages("docs/README.md", &pages).is_empty());
    pages.insert("docs/lost.md".to_owned(), "[a](a.md)".to_owned());
    assert_eq!(unreachable_pages("docs/README.md", &pages).len(), 1);

    let pages =
        files().into_iter().filter(|file| file.path.starts_with("docs/") && file.path.ends_with(".md"));
    assert_tidy(unreachable_pages("docs/README.md", &pages.map(|file| (file.path, file.text)).collect()));
}

/// `text_of` gives what a path leads to: a page's text, something else, or nothing.
fn broken_links(page: &File, text_of: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let broken = links(&page.path, &page.text).into_iter().filter(|(link, heading)| match text_of(link) {
        None => true,
        Some(text) => !heading.is_empty() && !has_heading(&text, heading),
    });
    broken
        .map(|(link, heading)| format!("{}: leads to {link}#{heading}, which is not there", page.path))
        .collect()
}

#[test]
fn every_link_between_our_pages_leads_somewhere() {
    let text = "## F g, h?\n[b](b.md) [c](../c.md#d) [e](https://e) [f](#f-g-h)".to_owned();
    let page = File { path: "docs/a.md".into(), text };
    let fine = |link: &str| match link {
        "docs/a.md" => Some(page.text.clone()),
        "docs/b.md" => Some(String::new()),
        "c.md" => Some("# D".to_owned()),
        _ => None,
    };
    assert!(broken_links(&page, fine).is_empty());
    assert_eq!(broken_links(&page, |_| None).len(), 3);
    assert_eq!(broken_links(&page, |_| Some(String::new())).len(), 2);

    let root = root();
    let text_of = |link: &str| {
        let path = root.join(link);
        path.exists().then(|| std::fs::read_to_string(path).unwrap_or_default())
    };
    let pages = files().into_iter().filter(|file| file.path.ends_with(".md"));
    assert_tidy(pages.flat_map(|page| broken_links(&page, text_of)).collect());
}
