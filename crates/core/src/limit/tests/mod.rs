mod advice;
mod calendars;
pub(crate) mod definitions;
mod gossip;
mod holders;
mod leases;
mod log;
mod receipts;
