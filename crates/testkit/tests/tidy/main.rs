//! Keeps the tree tidy: the invariants of ARCHITECTURE.md that the compiler can't see.
//!
//! Each rule is a pure function from text to complaints, tried on a sample that breaks it and then run over the tree.
//! It reads files and nothing else, so it is quick and needs no network, no server and no git.
//!
//! # Layout
//! - [`tree`]: which files there are
//! - [`source`]: just enough of a lexer to tell code from comments and strings
//! - [`layers`]: what core, store and api must not know
//! - [`secrets`]: where a lockToken must not go
//! - [`bounds`]: what must not grow without end, in memory or in lines
//! - [`habits`]: names, notes to ourselves, machine paths, module headers
//! - [`manual`]: docs that fit the code and each other

mod bounds;
mod habits;
mod layers;
mod manual;
mod secrets;
mod source;
mod tree;

/// Fails with every complaint at once: fixing them one run at a time is no fun.
fn assert_tidy(complaints: Vec<String>) {
    assert!(complaints.is_empty(), "\n\n{}\n", complaints.join("\n"));
}
