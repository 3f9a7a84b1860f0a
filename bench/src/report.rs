//! The table, on the terminal and in the file.

use crate::load::Sample;
use crate::machine::{self, Place};
use std::fmt::Write;

/// What was measured against what.
pub struct Row {
    /// The target it belongs to.
    pub id: &'static str,
    /// What was measured.
    pub what: String,
    /// Our figure.
    pub ours: String,
    /// The figure it is held against.
    pub peer: String,
    /// What is held against the target.
    pub figure: f64,
    /// How the figure reads.
    pub unit: Unit,
    /// What it should be; nothing for what is shown for orientation only.
    pub target: Option<Target>,
}

/// How a figure reads.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// A ratio.
    Times,
    /// Bytes.
    Bytes,
    /// Millions of bytes.
    Megabytes,
    /// Seconds.
    Seconds,
    /// Thousandths of a second.
    Milliseconds,
    /// A number of things.
    Count,
    /// A small part of one.
    Fraction,
}

/// What a figure should be.
#[derive(Clone, Copy)]
pub enum Target {
    /// Not lower.
    AtLeast(f64),
    /// Not higher.
    AtMost(f64),
}

impl Unit {
    fn show(self, figure: f64) -> String {
        match self {
            Self::Times if figure >= 10.0 => format!("{figure:.0}x"),
            Self::Times => format!("{figure:.2}x"),
            Self::Bytes => format!("{figure:.0} B"),
            Self::Megabytes => format!("{figure:.1} MB"),
            Self::Seconds => format!("{figure:.2} s"),
            Self::Milliseconds => format!("{figure:.2} ms"),
            Self::Count => format!("{figure:.2}"),
            Self::Fraction => format!("{figure:.4}"),
        }
    }
}

impl Row {
    /// How often we do something, against how often somebody else does.
    pub fn rates(
        id: &'static str,
        what: String,
        ours: &Sample,
        theirs: &Sample,
        target: Option<Target>,
    ) -> Self {
        let figure = ours.per_second / theirs.per_second;
        Self { id, what, ours: ours.show(), peer: theirs.show(), figure, unit: Unit::Times, target }
    }

    fn is_met(&self) -> Option<bool> {
        Some(match self.target? {
            Target::AtLeast(least) => self.figure >= least,
            Target::AtMost(most) => self.figure <= most,
        })
    }

    fn cells(&self) -> [String; 7] {
        let target = match self.target {
            Some(Target::AtLeast(least)) => format!(">= {}", self.unit.show(least)),
            Some(Target::AtMost(most)) => format!("<= {}", self.unit.show(most)),
            None => String::new(),
        };
        let met = match self.is_met() {
            Some(true) => "yes",
            Some(false) => "NO",
            None => "",
        };
        let figure = if self.figure.is_nan() { String::new() } else { self.unit.show(self.figure) };
        let (what, ours, peer) = (self.what.clone(), self.ours.clone(), self.peer.clone());
        [self.id.into(), what, ours, peer, figure, target, met.into()]
    }
}

const HEADINGS: [&str; 7] = ["", "what", "ours", "against", "figure", "target", "met"];

/// All that was measured.
#[derive(Default)]
pub struct Report {
    /// In the order of their ids.
    pub rows: Vec<Row>,
    /// How each was measured: id and text.
    pub methods: Vec<(&'static str, String)>,
    /// What the peers say they are.
    pub versions: Vec<String>,
    /// Rounds and their length.
    pub rounds: String,
}

impl Report {
    /// For a terminal.
    pub fn table(&self) -> String {
        let mut table = comfy_table::Table::new();
        table.load_style(comfy_table::presets::NOTHING).set_header(HEADINGS);
        for row in &self.rows {
            table.add_row(row.cells());
        }
        table.to_string()
    }

    /// For `bench/RESULTS.md`.
    pub fn markdown(&self, place: &Place) -> String {
        let mut text = String::from("# What Baton costs, beside others\n\n");
        let mut say = |line: &str| {
            text.push_str(line);
            text.push('\n');
        };
        say("Written by `make bench`; see [README.md](README.md) for how to read and repeat it.\n");
        say(&format!("- {}, {}", machine::today(), place.describe()));
        say(&format!("- {}", place.describe_load()));
        say(&format!("- against {}", self.versions.join(", ")));
        say(&format!("- {}", self.rounds));
        say("- every peer is on the same machine and disk in the same run, and synced before it answers\n");
        say(&format!("|{}|", HEADINGS.map(|heading| format!(" {heading} ")).join("|")));
        say(&format!("|{}|", HEADINGS.map(|_| "---").join("|")));
        for row in &self.rows {
            say(&format!("|{}|", row.cells().map(|cell| format!(" {cell} ")).join("|")));
        }
        say("\n## How it was measured\n");
        for (id, method) in &self.methods {
            say(&format!("- **{id}**: {method}"));
        }
        let profile = std::fs::read_to_string(place.source.join("PROFILE.md")).unwrap_or_default();
        if !profile.is_empty() {
            // Written by hand, with the profiler: it belongs to the results but can't be measured in a run.
            write!(text, "\n{}", profile.trim_end()).ok();
            text.push('\n');
        }
        text
    }
}
