//! baton-api
