//! baton-testkit
