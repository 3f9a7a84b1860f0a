//! What is measured of jobs.

pub mod due;
pub mod growth;
pub mod stored;
