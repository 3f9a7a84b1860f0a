//! What jobs do, on a store in a few lines and a clock in the test's hands.

mod asking;
mod attempts;
mod calendars;
mod clocks;
mod editing;
mod guarantees;
mod missing;
mod overlapping;
mod world;
