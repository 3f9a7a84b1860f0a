//! baton-bench
