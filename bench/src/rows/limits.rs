//! P7 to P10, and the limiter's part of P12.

pub mod hot;
pub mod http;
pub mod memory;
pub mod outage;
pub mod sdk;
pub mod traffic;
