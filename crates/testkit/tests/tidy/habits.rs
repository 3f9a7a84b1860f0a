//! Names, notes to ourselves, machine paths, module headers.

use crate::assert_tidy;
use crate::source::{code, identifiers, is_word};
use crate::tree::files;

/// Spelled in two parts, so that this file keeps its own rule.
const NOTES: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];

fn orphaned_notes(path: &str, text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    for (line, start, word) in identifiers(text) {
        let rest = &text.as_bytes()[start + word.len()..];
        let cited = rest.starts_with(b"(#") && rest.get(2).is_some_and(u8::is_ascii_digit);
        if NOTES.contains(&word) && !cited {
            complaints
                .push(format!("{path}:{line}: {word} without an issue: write {word}(#12), or do it now"));
        }
    }
    complaints
}

#[test]
fn a_note_to_ourselves_cites_its_issue() {
    let note = NOTES[0];
    assert!(orphaned_notes("x", &format!("// {note}(#7): later")).is_empty());
    for bad in [format!("// {note}: later"), format!("# {note}(me)"), NOTES[1].to_owned()] {
        assert_eq!(orphaned_notes("x", &bad).len(), 1, "{bad}");
    }

    assert_tidy(files().iter().flat_map(|file| orphaned_notes(&file.path, &file.text)).collect());
}

/// Where people's and machines' own directories are; in two parts, as above.
const PRIVATE: &[&str] = &[
    concat!("/ho", "me/"),
    concat!("/ro", "ot/"),
    concat!("/Us", "ers/"),
    concat!("/wo", "rk/"),
    concat!("C:\\Us", "ers\\"),
];

fn machine_paths(path: &str, text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    for (number, line) in text.lines().enumerate() {
        for prefix in PRIVATE {
            for (start, _) in line.match_indices(prefix) {
                let before = line.as_bytes()[..start].last().copied().unwrap_or(b' ');
                let after = line.as_bytes().get(start + prefix.len()).copied().unwrap_or(b' ');
                // `$X/…`, `./…` and `example.com/…` lead somewhere else on every machine.
                if !is_word(before) && !b".}~*".contains(&before) && (is_word(after) || after == b'.') {
                    complaints.push(format!("{path}:{}: a path of one machine: {prefix}…", number + 1));
                }
            }
        }
    }
    complaints
}

#[test]
fn no_path_of_one_machine_is_written_down() {
    for prefix in PRIVATE {
        assert_eq!(machine_paths("x", &format!("see {prefix}someone")).len(), 1, "{prefix}");
        assert!(machine_paths("x", &format!("example.com{prefix}someone")).is_empty(), "{prefix}");
    }

    assert_tidy(files().iter().flat_map(|file| machine_paths(&file.path, &file.text)).collect());
}

fn has_no_name_of_its_own(path: &str) -> Option<String> {
    const NAMELESS: &[&str] = &["common", "helper", "helpers", "misc", "util", "utils"];
    let nameless =
        path.split('/').find(|part| NAMELESS.contains(&part.split('.').next().unwrap_or_default()))?;
    Some(format!("{path}: `{nameless}` says nothing: if it has no better name it has no home yet"))
}

#[test]
fn every_file_has_a_name_of_its_own() {
    for bad in ["crates/x/src/utils.rs", "crates/x/tests/common/mod.rs", "scripts/helpers.py"] {
        assert!(has_no_name_of_its_own(bad).is_some(), "{bad}");
    }
    assert!(has_no_name_of_its_own("docs/uncommon.md").is_none());

    assert_tidy(files().iter().filter_map(|file| has_no_name_of_its_own(&file.path)).collect());
}

fn unsafe_code(path: &str, text: &str) -> Vec<String> {
    let code = code(text);
    identifiers(&code)
        .filter(|(_, _, identifier)| *identifier == "unsafe")
        .map(|(line, _, _)| format!("{path}:{line}: unsafe code"))
        .collect()
}

#[test]
fn there_is_no_unsafe_code_and_no_crate_that_opts_out_of_the_lints() {
    assert!(unsafe_code("x", "#![forbid(unsafe_code)] // unsafe\nlet a = \"unsafe\";").is_empty());
    assert_eq!(unsafe_code("x", "fn f() { unsafe { g() } }").len(), 1);

    let mut complaints = Vec::new();
    for file in files() {
        if file.is_rust() {
            complaints.extend(unsafe_code(&file.path, &file.text));
        } else if file.path.ends_with("/Cargo.toml") && !file.text.contains("[lints]\nworkspace = true") {
            complaints.push(format!("{}: needs [lints] workspace = true", file.path));
        }
    }
    assert_tidy(complaints);
}

fn lacks_a_header(path: &str, text: &str) -> Option<String> {
    (!text.starts_with("//! ")).then(|| format!("{path}: starts without //! what it is and what it promises"))
}

#[test]
fn every_crate_starts_with_what_it_is() {
    assert!(lacks_a_header("x", "//! The rules.").is_none());
    assert!(lacks_a_header("x", "use std::fmt;\n//! The rules.").is_some());

    let crates = files().into_iter().filter(|file| file.path.ends_with("src/lib.rs"));
    assert_tidy(crates.filter_map(|file| lacks_a_header(&file.path, &file.text)).collect());
}
