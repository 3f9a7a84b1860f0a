//! What the server's settings allow us to promise.

use super::Unopened;
use super::session::answered;
use crate::contract::Guarantees;
use std::time::Duration;
use tokio_postgres::Client;

/// The first version that all of this was written for.
const VERSION_MIN: i32 = 130_000;

/// Settings that matter, as they were when the store was opened.
pub(super) struct Settings {
    fsync: bool,
    full_page_writes: bool,
    synchronous_commit: String,
    has_standbys: bool,
    /// Somebody follows it.
    is_followed: bool,
}

const ASK: &str = "SELECT current_setting('server_version_num')::integer, current_setting('fsync')::boolean, \
    current_setting('full_page_writes')::boolean, current_setting('synchronous_commit'), \
    current_setting('synchronous_standby_names') <> '', \
    EXISTS (SELECT FROM pg_stat_replication AS r WHERE r.state IS DISTINCT FROM 'backup' AND r.pid NOT IN \
        (SELECT s.active_pid FROM pg_replication_slots AS s WHERE s.slot_type = 'logical' AND s.active_pid IS NOT NULL))";

impl Settings {
    /// Asks for them; refuses a server that isn't fit to be a store.
    pub async fn read(client: &Client) -> Result<Self, Unopened> {
        let row = answered(client.query_one(ASK, &[])).await?;
        let version: i32 = row.get(0);
        if version < VERSION_MIN {
            return Err(format!("PostgreSQL {} is too old: 13 or newer is needed", version / 10_000).into());
        }
        Ok(Self {
            fsync: row.get(1),
            full_page_writes: row.get(2),
            synchronous_commit: row.get(3),
            has_standbys: row.get(4),
            is_followed: row.get(5),
        })
    }

    fn waits_for_a_standby(&self) -> bool {
        self.has_standbys && self.synchronous_commit != "local"
    }

    fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let mut warn = |warning: &str| warnings.push(warning.to_owned());
        if !self.fsync {
            warn("fsync is off: a crash of the machine may lose or corrupt what was acknowledged");
        }
        if !self.full_page_writes {
            warn("full_page_writes is off: a crash of the machine may corrupt the data");
        }
        if self.is_followed && !self.has_standbys {
            warn(
                "synchronous_standby_names is empty and there are standbys: a failover to one of them loses the last \
                 commits, and with them locks that were granted",
            );
        }
        if self.has_standbys && self.synchronous_commit == "local" {
            warn(
                "synchronous_commit is local: no standby is waited for, a failover may lose what was acknowledged",
            );
        }
        if self.has_standbys && self.synchronous_commit == "remote_write" {
            warn(
                "synchronous_commit is remote_write: a standby that crashes as well may lose what was acknowledged",
            );
        }
        warnings
    }

    pub fn guarantees(&self) -> Guarantees {
        Guarantees {
            store: "postgres",
            shared: true,
            answers_always: false,
            charge_spans_groups: true,
            ttl_min: Duration::from_millis(1),
            ttl_granularity: Duration::from_millis(1),
            on_crash: if self.fsync {
                "nothing acknowledged is lost; leases run on while the server is down"
            } else {
                "fsync is off: what was acknowledged may be lost; leases run on while the server is down"
            },
            on_failover: if self.waits_for_a_standby() {
                "nothing acknowledged is lost if the one promoted is the synchronous standby; revisions go on above \
                 its clock; two primaries at once are not excluded by this store"
            } else {
                "no standby is waited for: the last commits before a failover may be lost, and with them locks that \
                 were granted; revisions go on above the clock of the one promoted, and don't repeat if the clocks \
                 of the servers agree"
            },
            on_partition: if self.waits_for_a_standby() {
                "a primary that is cut off from its synchronous standbys acknowledges no commit; what it was sent is unknown"
            } else {
                "a primary that is cut off goes on answering whoever reaches it: if another one is promoted meanwhile, both \
                 grant, and keeping one of them out is the business of whoever promotes"
            },
            on_clock_step: "leases run on the server's wall clock: a step forward ends them early (the fence \
                protects), a step back prolongs them and may bring back one that had expired and wasn't collected; \
                revisions only grow",
            warnings: self.warnings(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warnings(change: impl FnOnce(&mut Settings)) -> Vec<String> {
        let synchronous_commit = "on".to_owned();
        let mut settings = Settings {
            fsync: true,
            full_page_writes: true,
            synchronous_commit,
            has_standbys: false,
            is_followed: false,
        };
        change(&mut settings);
        settings.guarantees().warnings
    }

    #[test]
    fn each_setting_that_weakens_the_promises_is_named() {
        assert_eq!(warnings(|_| ()), [""; 0]);
        assert!(warnings(|settings| settings.fsync = false)[0].contains("fsync"));
        assert!(warnings(|settings| settings.full_page_writes = false)[0].contains("full_page_writes"));
        let local = warnings(|settings| {
            settings.has_standbys = true;
            settings.synchronous_commit = "local".into();
        });
        assert!(local[0].contains("local"), "{local:?}");
        assert_eq!(warnings(|settings| settings.has_standbys = true), [""; 0]);
        let followed = warnings(|settings| settings.is_followed = true);
        assert!(followed[0].contains("synchronous_standby_names"), "{followed:?}");
        assert_eq!(
            warnings(|settings| (settings.is_followed, settings.has_standbys) = (true, true)),
            [""; 0]
        );
    }
}
