//! A plot of what was admitted against what was allowed, with the bound drawn in: one panel for each mechanism. Written by hand, since
//! lines and words are all there is to it.

use crate::outcome::{Outcome, Second};
use crate::plan::Plan;
use std::fmt::Write;

const WIDTH: f64 = 860.0;
const PANEL: f64 = 240.0;
/// Around the plot: for numbers on the left, words above, seconds below.
const LEFT: f64 = 90.0;
const RIGHT: f64 = 20.0;
const ABOVE: f64 = 44.0;
const BELOW: f64 = 30.0;
/// Fewer points than this make no plot.
const POINTS_MIN: u64 = 4;
/// More points than this aren't told apart.
const POINTS_MAX: u64 = 1_200;

/// What a line shows of a point.
type Value = fn(&Second) -> u64;

const OFFERED: &str = "#9aa0a6";
const ALLOWED: &str = "#188038";
const ADMITTED: &str = "#1a73e8";
const BOUND: &str = "#d93025";

/// The plot of all outcomes of a plan.
pub fn plot(plan: &Plan, outcomes: &[Outcome]) -> String {
    let height = PANEL * outcomes.len().max(1) as f64;
    let mut to = String::new();
    let written = write_plot(&mut to, plan, outcomes, height);
    written.expect("a string takes all that is written");
    to
}

fn write_plot(to: &mut String, plan: &Plan, outcomes: &[Outcome], height: f64) -> std::fmt::Result {
    writeln!(
        to,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         role=\"img\" font-family=\"sans-serif\" font-size=\"12\">"
    )?;
    writeln!(to, "<title>Admitted against allowed, by mechanism</title>")?;
    writeln!(to, "<rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>")?;
    for (number, outcome) in outcomes.iter().enumerate() {
        writeln!(to, "<g transform=\"translate(0 {})\">", PANEL * number as f64)?;
        write_panel(to, plan, outcome)?;
        writeln!(to, "</g>")?;
    }
    writeln!(to, "</svg>")
}

/// How many seconds a point stands for: a window's, if there are enough of them.
fn seconds_of_a_point(plan: &Plan) -> u64 {
    let (window, run) = (plan.definition.window_ms.div_ceil(1_000), plan.duration_ms.div_ceil(1_000));
    let wanted = if run / window >= POINTS_MIN { window } else { 1 };
    wanted.max(run.div_ceil(POINTS_MAX))
}

/// What may pass in a point, if the bound says anything about a time as short as that.
fn bound_of_a_point(plan: &Plan, bound: u64, seconds: u64) -> Option<u64> {
    let (point_ms, window_ms) = (seconds * 1_000, plan.definition.window_ms);
    (point_ms >= window_ms).then(|| bound.saturating_mul(point_ms.div_ceil(window_ms)))
}

fn write_panel(to: &mut String, plan: &Plan, outcome: &Outcome) -> std::fmt::Result {
    let seconds = seconds_of_a_point(plan);
    let points: Vec<Second> = outcome.seconds.chunks(seconds as usize).map(sum).collect();
    // The bound is of one key; where several are plotted together it says nothing.
    let bound = outcome.bound.filter(|_| plan.keys == 1);
    let bound = bound.and_then(|bound| bound_of_a_point(plan, bound, seconds));
    let highest = points.iter().flat_map(|point| [point.offered, point.allowed, point.admitted]).max();
    let top = highest.unwrap_or_default().max(bound.unwrap_or_default()).max(1) as f64 * 1.05;
    let (wide, high) = (WIDTH - LEFT - RIGHT, PANEL - ABOVE - BELOW);
    let y = |value: u64| ABOVE + high - high * value as f64 / top;
    let x = |place: usize| LEFT + wide * (place as f64 + 0.5) / points.len().max(1) as f64;

    let said = match (outcome.bound, bound) {
        (Some(whole), None) => format!("; one key at most {whole} in a window"),
        _ => String::new(),
    };
    let unit = if seconds == 1 { "second".into() } else { format!("{seconds} s") };
    writeln!(
        to,
        "<text x=\"{LEFT}\" y=\"18\" font-weight=\"bold\">{}: checks for each {unit}{said}</text>",
        outcome.mechanism
    )?;
    let keys = [("offered", OFFERED), ("allowed", ALLOWED), ("admitted", ADMITTED), ("bound", BOUND)];
    for (place, (word, color)) in
        keys.into_iter().enumerate().filter(|(place, _)| *place < 3 || bound.is_some())
    {
        let at = LEFT + 90.0 * place as f64;
        writeln!(to, "<text x=\"{at}\" y=\"36\" fill=\"{color}\">{word}</text>")?;
    }
    for part in 0..=4_u64 {
        let value = (top * part as f64 / 4.0) as u64;
        let (at, end) = (y(value), LEFT + wide);
        writeln!(to, "<line x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{end}\" y2=\"{at:.1}\" stroke=\"#e8eaed\"/>")?;
        let (left, down) = (LEFT - 8.0, at + 4.0);
        writeln!(
            to,
            "<text x=\"{left}\" y=\"{down:.1}\" text-anchor=\"end\" fill=\"#5f6368\">{value}</text>"
        )?;
    }
    let last = outcome.seconds.len();
    for (at, word, anchor) in [(LEFT, "0 s".into(), "start"), (LEFT + wide, format!("{last} s"), "end")] {
        let down = PANEL - BELOW + 18.0;
        writeln!(
            to,
            "<text x=\"{at}\" y=\"{down}\" text-anchor=\"{anchor}\" fill=\"#5f6368\">{word}</text>"
        )?;
    }
    let lines: [(Value, &str, &str); 3] = [
        (|point| point.offered, OFFERED, "1"),
        (|point| point.allowed, ALLOWED, "3"),
        (|point| point.admitted, ADMITTED, "1.5"),
    ];
    for (of, color, width) in lines {
        write!(to, "<polyline fill=\"none\" stroke=\"{color}\" stroke-width=\"{width}\" points=\"")?;
        for (place, point) in points.iter().enumerate() {
            write!(to, "{:.1},{:.1} ", x(place), y(of(point)))?;
        }
        writeln!(to, "\"/>")?;
    }
    if let Some(bound) = bound {
        let (at, end) = (y(bound), LEFT + wide);
        writeln!(
            to,
            "<line x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{end}\" y2=\"{at:.1}\" stroke=\"{BOUND}\" stroke-dasharray=\"6 4\"/>"
        )?;
    }
    Ok(())
}

fn sum(seconds: &[Second]) -> Second {
    seconds.iter().fold(Second::default(), |sum, second| Second {
        offered: sum.offered + second.offered,
        admitted: sum.admitted + second.admitted,
        allowed: sum.allowed + second.allowed,
        store_operations: sum.store_operations + second.store_operations,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::definition;
    use baton_core::meter::Algorithm;

    fn plan(window_ms: u64, duration_ms: u64) -> Plan {
        Plan { duration_ms, ..Plan::new(10, 1, definition(Algorithm::FixedWindow, 10, window_ms)) }
    }

    #[test]
    fn a_point_stands_for_a_window_where_there_are_enough_of_them() {
        for (window_ms, duration_ms, seconds, bound) in [
            (1_000, 60_000, 1, Some(20)),
            (250, 60_000, 1, Some(80)),
            (1_500, 60_000, 2, Some(40)),
            (60_000, 600_000, 60, Some(20)),
            (60_000, 120_000, 1, None),
            (1_000, 3_600_000, 3, Some(60)),
        ] {
            let plan = plan(window_ms, duration_ms);
            assert_eq!(seconds_of_a_point(&plan), seconds, "{window_ms} of {duration_ms}");
            assert_eq!(bound_of_a_point(&plan, 20, seconds), bound, "{window_ms} of {duration_ms}");
        }
    }
}
