-- Version 1. What a migration of this file may not do to a node of an older version that still runs: take away or
-- change a function that it calls. New needs get new functions.

CREATE TABLE @schema@.records (
    part       smallint NOT NULL,  -- the record's group
    name       bytea    NOT NULL,
    value      bytea    NOT NULL,
    created    bigint   NOT NULL,
    revision   bigint   NOT NULL,
    touches    bigint   NOT NULL,
    expires_us bigint,             -- null: never
    due_us     bigint,             -- when the collector looks at it: moved by a Put, not by a Touch, so that a Touch
                                   -- changes nothing that is indexed
    PRIMARY KEY (part, name)
) WITH (fillfactor = 70);

CREATE INDEX records_due ON @schema@.records (due_us) WHERE due_us IS NOT NULL;

CREATE SEQUENCE @schema@.revisions AS bigint MAXVALUE 9007199254740991 CACHE 1;

-- Under which server, and from which sequence, revisions were last raised above the clock.
CREATE TABLE @schema@.epoch (
    sequence_oid   oid,
    server_started timestamptz
);
INSERT INTO @schema@.epoch VALUES (NULL, NULL);

CREATE FUNCTION @schema@.clock_us() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
$$;

-- Raises the sequence above everything that may have been handed out. Every commit calls it when it finds
-- another server process or another sequence than the last time: after a restart, a promotion, a restore of files (all
-- of which have another start time, also when the timeline and the system identifier stay) and a restore of a dump
-- (which makes a new sequence); or a sequence far behind the clock. The clock in microseconds is ahead of a sequence
-- that began there and grew by one a commit.
CREATE FUNCTION @schema@.settle() RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    now_us bigint;
    last   bigint;
BEGIN
    -- One at a time. Whoever waited here finds it done.
    PERFORM FROM @schema@.epoch FOR UPDATE;
    now_us := @schema@.clock_us();
    SELECT last_value INTO last FROM @schema@.revisions;
    PERFORM FROM @schema@.epoch AS e
        WHERE e.sequence_oid = '@schema@.revisions'::regclass::oid
        AND e.server_started = pg_postmaster_start_time()
        AND last >= now_us - 60000000;
    IF FOUND THEN
        RETURN;
    END IF;
    -- Others may draw between these two statements, once each, before they wait above: fewer than a thousand. Not more
    -- than that, or the sequence would be ahead of the clock and the next loss would repeat what lies between.
    PERFORM setval('@schema@.revisions'::regclass, greatest(last + 1000, now_us));
    UPDATE @schema@.epoch
        SET sequence_oid = '@schema@.revisions'::regclass::oid, server_started = pg_postmaster_start_time();
END
$$;

-- One commit. It must be VOLATILE and run in READ COMMITTED: only then does each statement in it see what was committed
-- while it waited for the locks. The order is what makes revisions grow for each key: locks, clock, checks, revision,
-- writes.
--
-- locks: sorted, one for each key, also for keys that have no record yet
-- checks: 0 absent, 1 created by, 2 last put by, 3 there (for a Touch)
-- changes: 1 touch, 2 delete
--
-- The first row: revision is the commit's own, null for a conflict; created is the clock. Then one row for each
-- change, or for a conflict one for each check.
CREATE FUNCTION @schema@.commit_records(
    locks bigint[], group_number smallint,
    check_kinds smallint[], check_names bytea[], check_revisions bigint[],
    put_names bytea[], put_values bytea[], put_ttls_us bigint[],
    change_kinds smallint[], change_names bytea[], change_ttls_us bigint[]
) RETURNS TABLE (present boolean, value bytea, created bigint, revision bigint, touches bigint, left_us bigint)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    now_us  bigint;
    drawn   bigint;
    settled boolean;
BEGIN
    PERFORM pg_advisory_xact_lock(lock) FROM unnest(locks) AS lock;
    now_us := @schema@.clock_us();

    PERFORM FROM unnest(check_kinds, check_names, check_revisions) AS asked (kind, name, revision)
        LEFT JOIN @schema@.records AS r
            ON r.part = group_number AND r.name = asked.name AND (r.expires_us IS NULL OR r.expires_us > now_us)
        WHERE CASE asked.kind
            WHEN 0 THEN r.name IS NOT NULL
            WHEN 1 THEN r.created IS DISTINCT FROM asked.revision
            WHEN 2 THEN r.revision IS DISTINCT FROM asked.revision
            ELSE r.name IS NULL
        END;
    IF FOUND THEN
        RETURN QUERY SELECT false, NULL::bytea, now_us, NULL::bigint, NULL::bigint, NULL::bigint;
        RETURN QUERY SELECT r.name IS NOT NULL, r.value, r.created, r.revision, r.touches, r.expires_us - now_us
            FROM unnest(check_names) WITH ORDINALITY AS asked (name, turn)
            LEFT JOIN @schema@.records AS r
                ON r.part = group_number AND r.name = asked.name AND (r.expires_us IS NULL OR r.expires_us > now_us)
            ORDER BY asked.turn;
        RETURN;
    END IF;

    SELECT nextval('@schema@.revisions'::regclass),
        e.sequence_oid = '@schema@.revisions'::regclass::oid AND e.server_started = pg_postmaster_start_time()
        INTO drawn, settled FROM @schema@.epoch AS e;
    IF settled IS NOT TRUE OR drawn < now_us - 60000000 THEN
        PERFORM @schema@.settle();
        drawn := nextval('@schema@.revisions'::regclass);
    END IF;
    RETURN QUERY SELECT true, NULL::bytea, now_us, drawn, NULL::bigint, NULL::bigint;

    IF cardinality(put_names) > 0 THEN
        INSERT INTO @schema@.records AS r (part, name, value, created, revision, touches, expires_us, due_us)
            SELECT group_number, put.name, put.value, drawn, drawn, 0, now_us + put.ttl_us, now_us + put.ttl_us
            FROM unnest(put_names, put_values, put_ttls_us) AS put (name, value, ttl_us)
            ON CONFLICT (part, name) DO UPDATE SET
                value = excluded.value,
                created = CASE WHEN r.expires_us <= now_us THEN excluded.created ELSE r.created END,
                revision = excluded.revision,
                touches = CASE WHEN r.expires_us <= now_us THEN 0 ELSE r.touches END,
                expires_us = excluded.expires_us,
                due_us = excluded.due_us;
    END IF;

    FOR turn IN 1 .. cardinality(change_kinds) LOOP
        IF change_kinds[turn] = 1 THEN
            RETURN QUERY UPDATE @schema@.records AS r SET
                touches = r.touches + 1,
                expires_us = CASE WHEN r.expires_us IS NULL THEN NULL
                    ELSE greatest(r.expires_us, now_us + change_ttls_us[turn]) END
                WHERE r.part = group_number AND r.name = change_names[turn]
                RETURNING true, r.value, r.created, r.revision, r.touches, r.expires_us - now_us;
        ELSE
            DELETE FROM @schema@.records AS r
                WHERE r.part = group_number AND r.name = change_names[turn]
                RETURNING r.expires_us IS NULL OR r.expires_us > now_us,
                    r.value, r.created, r.revision, r.touches, r.expires_us - now_us
                INTO present, value, created, revision, touches, left_us;
            present := coalesce(present, false);
            RETURN NEXT;
        END IF;
    END LOOP;
END
$$;

-- Names whose time to be looked at has come.
CREATE FUNCTION @schema@.due_records(at_most integer) RETURNS TABLE (part smallint, name bytea)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    now_us bigint := @schema@.clock_us();
BEGIN
    RETURN QUERY SELECT r.part, r.name FROM @schema@.records AS r
        WHERE r.due_us IS NOT NULL AND r.due_us <= now_us ORDER BY r.due_us LIMIT at_most;
END
$$;

-- Removes those of the named records that have expired; the others, which were touched, are looked at again when their
-- time comes. Gives both. A commit that is deciding about a name has its lock: then it is left alone.
CREATE FUNCTION @schema@.collect_records(locks bigint[], parts smallint[], names bytea[])
RETURNS TABLE (part smallint, name bytea, removed boolean)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    now_us bigint;
BEGIN
    -- Should it be lost in a crash, they are as expired as before.
    PERFORM set_config('synchronous_commit', 'off', true);
    FOR turn IN 1 .. cardinality(names) LOOP
        CONTINUE WHEN NOT pg_try_advisory_xact_lock(locks[turn]);
        now_us := @schema@.clock_us();
        RETURN QUERY DELETE FROM @schema@.records AS r
            WHERE r.part = parts[turn] AND r.name = names[turn] AND r.expires_us <= now_us
            RETURNING r.part, r.name, true;
        CONTINUE WHEN FOUND;
        RETURN QUERY UPDATE @schema@.records AS r SET due_us = r.expires_us
            WHERE r.part = parts[turn] AND r.name = names[turn] AND r.due_us <= now_us
            RETURNING r.part, r.name, false;
    END LOOP;
END
$$;
