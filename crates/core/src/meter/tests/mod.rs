//! The meter's function, run as a store runs it.
//!
//! # Layout
//! - [`world`]: meters as a store keeps them
//! - [`oracle`]: every algorithm again, by brute force over all that ever happened; [`booking`] and [`crediting`] use it too
//! - [`leasing`]: holders that spend on their own, with everything that goes wrong between them and the store; [`actual`] is
//!   what they may have spent at most, and [`changing`] and [`sharing`] are tables beside it
//! - [`holding`]: decisions over several meters
//! - [`calendar`]: windows of uneven length
//! - [`reading`]: what a meter shows
//! - [`text`]: what is written, and what is refused; [`extremes`]: the same for any numbers and any damage

mod actual;
mod booking;
mod calendar;
mod changing;
mod crediting;
mod extremes;
mod holding;
mod leasing;
mod oracle;
mod reading;
mod sharing;
mod text;
mod world;
