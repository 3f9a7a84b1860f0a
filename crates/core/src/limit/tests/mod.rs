mod calendars;
mod definitions;
mod leases;
mod receipts;
