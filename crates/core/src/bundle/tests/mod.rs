//! A bundle's record: every answer, and any sequence of calls that race, repeat and lose their answers.

mod answers;
mod random;
mod world;
