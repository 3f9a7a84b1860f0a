//! baton-client
