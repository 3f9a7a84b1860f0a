//! Just enough of a lexer to tell Rust code from its comments and strings.

/// The same text, same length and lines, with comments blanked out, and strings too unless they are to be kept.
pub fn blank(text: &str, keep_strings: bool) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let (end, keep) = match bytes[at] {
            b'/' if bytes[at..].starts_with(b"//") => (find(bytes, at, b"\n"), false),
            b'/' if bytes[at..].starts_with(b"/*") => (block_comment_end(bytes, at), false),
            b'"' => (string_end(bytes, at + 1), keep_strings),
            b'r' if !preceded_by_word(bytes, at) && raw_hashes(bytes, at).is_some() => {
                let hashes = raw_hashes(bytes, at).expect("just seen");
                let close = format!("\"{}", "#".repeat(hashes));
                let open = at + 1 + hashes + 1;
                ((find(bytes, open, close.as_bytes()) + close.len()).min(bytes.len()), keep_strings)
            }
            b'\'' => (char_end(bytes, at), true),
            _ => (at + 1, true),
        };
        if !keep {
            for byte in &mut out[at..end] {
                if *byte != b'\n' {
                    *byte = b' ';
                }
            }
        }
        at = end;
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Code without comments and strings.
pub fn code(text: &str) -> String {
    blank(text, false)
}

/// Every identifier with the line it is on and its offset.
pub fn identifiers(code: &str) -> impl Iterator<Item = (usize, usize, &str)> {
    let mut line = 1;
    let mut at = 0;
    std::iter::from_fn(move || {
        let bytes = code.as_bytes();
        while at < bytes.len() && !is_word(bytes[at]) {
            line += usize::from(bytes[at] == b'\n');
            at += 1;
        }
        let start = at;
        while at < bytes.len() && is_word(bytes[at]) {
            at += 1;
        }
        (start < at).then(|| (line, start, &code[start..at]))
    })
}

/// The words of an identifier, in lower case: `LockFile`, `lock_file` and `LOCK_FILE` are all `lock`, `file`.
pub fn words(identifier: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = '_';
    for character in identifier.chars() {
        let hump = character.is_uppercase() && !before.is_uppercase();
        if (character == '_' || hump) && words.last().is_some_and(|word| !word.is_empty()) {
            words.push(String::new());
        }
        if character != '_' {
            words.last_mut().expect("never empty").extend(character.to_lowercase());
        }
        before = character;
    }
    words.retain(|word| !word.is_empty());
    words
}

/// The line that an offset is on.
pub fn line_of(text: &str, offset: usize) -> usize {
    text[..offset].matches('\n').count() + 1
}

/// What is between the bracket at `open` and the one that closes it.
pub fn bracketed(code: &str, open: usize) -> &str {
    let mut depth = 0usize;
    for (offset, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return &code[open..offset];
        }
    }
    &code[open..]
}

/// Whether a byte can be part of an identifier. Outside ASCII everything counts, which keeps slices on boundaries.
pub fn is_word(byte: u8) -> bool {
    byte == b'_' || byte.is_ascii_alphanumeric() || !byte.is_ascii()
}

fn preceded_by_word(bytes: &[u8], at: usize) -> bool {
    at > 0 && is_word(bytes[at - 1]) && !(bytes[at - 1] == b'b' && (at < 2 || !is_word(bytes[at - 2])))
}

fn find(bytes: &[u8], from: usize, wanted: &[u8]) -> usize {
    let rest = bytes.get(from..).unwrap_or_default();
    rest.windows(wanted.len()).position(|window| window == wanted).map_or(bytes.len(), |offset| from + offset)
}

fn block_comment_end(bytes: &[u8], at: usize) -> usize {
    let mut depth = 0usize;
    let mut here = at;
    while here < bytes.len() {
        if bytes[here..].starts_with(b"/*") {
            depth += 1;
            here += 2;
        } else if bytes[here..].starts_with(b"*/") {
            depth -= 1;
            here += 2;
            if depth == 0 {
                return here;
            }
        } else {
            here += 1;
        }
    }
    bytes.len()
}

fn string_end(bytes: &[u8], mut at: usize) -> usize {
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

fn raw_hashes(bytes: &[u8], at: usize) -> Option<usize> {
    let hashes = bytes[at + 1..].iter().take_while(|byte| **byte == b'#').count();
    (bytes.get(at + 1 + hashes) == Some(&b'"')).then_some(hashes)
}

/// The end of a character literal, or just past the quote of a lifetime.
fn char_end(bytes: &[u8], at: usize) -> usize {
    if bytes.get(at + 1) == Some(&b'\\') {
        return (find(bytes, at + 3, b"'") + 1).min(bytes.len());
    }
    let close = bytes[at + 1..].iter().take(5).position(|byte| *byte == b'\'');
    match close {
        Some(length) if length == 1 || (length > 1 && !bytes[at + 1].is_ascii()) => at + 1 + length + 1,
        _ => at + 1,
    }
}

#[test]
fn comments_and_strings_are_not_code() {
    let text =
        "let a = \"x // y\"; // z\nlet c = '\"'; fn f<'a>() {} /* p /* q */ r */ b r#\"s\"t\"# 'é' '\\'' end";
    let code = code(text);
    assert_eq!(code.len(), text.len());
    let found: Vec<_> = identifiers(&code).map(|(_, _, name)| name).filter(|name| name.is_ascii()).collect();
    assert_eq!(found, ["let", "a", "let", "c", "fn", "f", "a", "b", "end"]);
    assert!(blank(text, true).contains("x // y"));
}

#[test]
fn an_identifier_falls_into_words() {
    for name in ["LockFile", "lock_file", "LOCK_FILE"] {
        assert_eq!(words(name), ["lock", "file"]);
    }
    assert_eq!(words("block"), ["block"]);
}
