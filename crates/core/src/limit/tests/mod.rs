mod calendars;
pub(crate) mod definitions;
mod leases;
mod log;
mod receipts;
