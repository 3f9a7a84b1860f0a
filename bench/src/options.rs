//! What can be asked for.

use crate::machine::Place;
use crate::peers::bare::BareOptions;
use crate::peers::limits::HandlerOptions;
use crate::peers::requests::RequestsOptions;
use crate::rows::HolderOptions;
use std::path::PathBuf;
use std::time::Duration;

/// Measure Baton beside etcd, Redis, PostgreSQL and the bare disk
#[derive(clap::Parser, Debug)]
#[command(name = "baton-bench", max_term_width = 100, args_conflicts_with_subcommands = true)]
pub struct Options {
    /// Only these rows, such as p1,p4,handover
    #[arg(long, value_delimiter = ',', value_name = "ROWS", ignore_case = true)]
    pub only: Vec<RowId>,
    /// Seconds of one measurement of one side
    #[arg(long, default_value_t = 3.0, value_name = "SECONDS")]
    seconds: f64,
    /// How often the sides take turns; medians are reported
    #[arg(long, default_value_t = 5, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,
    /// Two rounds of half a second and a tenth of the sizes: whether it works, not how fast
    #[arg(long)]
    pub quick: bool,
    /// Measure this binary instead of building the one of this source
    #[arg(long, value_name = "FILE")]
    pub baton: Option<PathBuf>,
    /// Write bench/RESULTS.md even if not everything was measured
    #[arg(long)]
    write: bool,
    #[command(subcommand)]
    pub role: Option<Role>,
}

/// What this program also is, for itself.
#[derive(clap::Subcommand, Debug)]
pub enum Role {
    /// The server that P5 is held against
    #[command(hide = true)]
    Bare(BareOptions),
    /// The server that P8 is held against
    #[command(hide = true)]
    Handler(HandlerOptions),
    /// The process whose memory P12 looks at
    #[command(hide = true)]
    Holder(HolderOptions),
    /// The client that P11 is held against
    #[command(hide = true)]
    Requests(RequestsOptions),
}

/// A row of the targets.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[allow(missing_docs, reason = "they are the ids of the targets")]
pub enum RowId {
    P1,
    P2,
    P3,
    P4,
    P5,
    P6,
    Handover,
    P7,
    P8,
    P9,
    P10,
    HotKey,
    P11,
    P12,
    P12Limits,
    P12Jobs,
    P13,
    P13Jobs,
    P14,
    P15,
    Replica,
}

impl Options {
    /// Whether a row is asked for.
    pub fn wants(&self, row: RowId) -> bool {
        self.only.is_empty() || self.only.contains(&row)
    }

    /// How long one side is measured at a time.
    pub fn length(&self) -> Duration {
        let seconds = if self.quick { 0.5 } else { self.seconds };
        Duration::from_secs_f64(seconds.clamp(0.1, 60.0))
    }

    /// How often the sides take turns.
    pub fn turns(&self) -> u32 {
        if self.quick { 2 } else { self.rounds }
    }

    /// A number of things to fill something with.
    pub fn size(&self, full: usize) -> usize {
        if self.quick { (full / 10).max(10) } else { full }
    }

    /// Where the results go, if they are complete or wanted anyway.
    pub fn results(&self, place: &Place) -> Option<PathBuf> {
        let complete = self.only.is_empty() && !self.quick && self.baton.is_none();
        (complete || self.write).then(|| place.source.join("RESULTS.md"))
    }
}
