-- Version 4: what version 2 does, for less. A name is looked for once: its check is decided on what was found, its write
-- goes to where that was found, and an answer shows what was seen there.

-- A revision above all before it.
CREATE FUNCTION @schema@.next_revision(now_us bigint) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    drawn   bigint;
    settled boolean;
BEGIN
    SELECT nextval('@schema@.revisions'::regclass),
        e.sequence_oid = '@schema@.revisions'::regclass::oid AND e.server_started = pg_postmaster_start_time()
        INTO drawn, settled FROM @schema@.epoch AS e;
    IF settled IS NOT TRUE OR drawn < now_us - 60000000 THEN
        PERFORM @schema@.settle();
        drawn := nextval('@schema@.revisions'::regclass);
    END IF;
    RETURN drawn;
END
$$;

-- Commits, each as if alone: who is refused changes nothing and keeps nobody else from anything. No two of them may be about
-- one name, so they may have one revision. The order is the one of `commit_records`: locks, clock, checks, revision, writes.
-- The locks have a statement of their own, so that all else sees what was committed while they were waited for; the rest is
-- one statement, in which the revision waits for the checks, and each write for the revision. Where a record lies (`ctid`)
-- stays so as long as its lock is held: whoever changes or removes one has that lock.
--
-- locks: sorted, one for each key of all of them
-- commits: how many; one may have no place
-- By place, from 1, one for each check, and one for each write that is about no name that is checked:
--     turns: whose it is, from 1; parts, names: what it is about
--     checks: 0 absent, 1 created by, 2 last put by, 3 there, 4 anything
--     writes: 0 none, 1 put, 2 touch, 3 delete; what is touched has to be checked to be there
--
-- Rows in any order. Place 0: `revision` is that of all that happened, null if nothing did; `created` is the clock. A place
-- below 0: the commit of this turn, made negative, was refused; perhaps more than once. The others are places: what was touched
-- or deleted by those that happened, and what those that were refused had checked; nothing for what wasn't there.
CREATE FUNCTION @schema@.commit_together(
    locks bigint[], commits integer,
    turns integer[], parts smallint[], names bytea[], checks smallint[], check_revisions bigint[],
    writes smallint[], put_values bytea[], ttls_us bigint[]
) RETURNS TABLE (place integer, value bytea, created bigint, revision bigint, touches bigint, left_us bigint)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    now_us bigint;
BEGIN
    PERFORM pg_advisory_xact_lock(lock) FROM unnest(locks) AS lock;
    now_us := @schema@.clock_us();

    RETURN QUERY
    WITH found AS MATERIALIZED (
        SELECT asked.place, turns[asked.place] AS turn, checks[asked.place] AS kind, writes[asked.place] AS how,
            r.ctid AS lies, r.name IS NOT NULL AND (r.expires_us IS NULL OR r.expires_us > now_us) AS lives,
            r.value, r.created, r.revision, r.touches, r.expires_us
        FROM (SELECT generate_subscripts(turns, 1) AS place) AS asked
        LEFT JOIN @schema@.records AS r ON r.part = parts[asked.place] AND r.name = names[asked.place]
    ), refused AS MATERIALIZED (
        SELECT coalesce(array_agg(f.turn), '{}') AS turns FROM found AS f
        WHERE CASE f.kind
            WHEN 0 THEN f.lives
            WHEN 1 THEN NOT f.lives OR f.created <> check_revisions[f.place]
            WHEN 2 THEN NOT f.lives OR f.revision <> check_revisions[f.place]
            WHEN 3 THEN NOT f.lives
            ELSE false
        END
    ), decided AS MATERIALIZED (
        SELECT no.turns AS refused,
            CASE WHEN EXISTS (SELECT FROM generate_series(1, commits) AS turn WHERE turn <> ALL (no.turns))
                THEN @schema@.next_revision(now_us) END AS revision
        FROM refused AS no
    ), inserted AS (
        INSERT INTO @schema@.records (part, name, value, created, revision, touches, expires_us, due_us)
            SELECT parts[f.place], names[f.place], put_values[f.place], d.revision, d.revision, 0,
                now_us + ttls_us[f.place], now_us + ttls_us[f.place]
            FROM decided AS d, found AS f
            WHERE f.how = 1 AND f.lies IS NULL AND f.turn <> ALL (d.refused)
    ), updated AS (
        UPDATE @schema@.records AS r SET
                value = CASE WHEN f.how = 1 THEN put_values[f.place] ELSE r.value END,
                created = CASE WHEN f.lives THEN r.created ELSE d.revision END,
                revision = CASE WHEN f.how = 1 THEN d.revision ELSE r.revision END,
                touches = CASE WHEN f.how = 2 THEN r.touches + 1 WHEN f.lives THEN r.touches ELSE 0 END,
                expires_us = CASE WHEN f.how = 1 THEN now_us + ttls_us[f.place]
                    WHEN r.expires_us IS NOT NULL THEN greatest(r.expires_us, now_us + ttls_us[f.place]) END,
                due_us = CASE WHEN f.how = 1 THEN now_us + ttls_us[f.place] ELSE r.due_us END
            FROM decided AS d, found AS f
            WHERE f.how IN (1, 2) AND f.turn <> ALL (d.refused) AND r.ctid = f.lies
    ), deleted AS (
        DELETE FROM @schema@.records WHERE ctid = ANY (ARRAY(
            SELECT f.lies FROM decided AS d, found AS f WHERE f.how = 3 AND f.turn <> ALL (d.refused)))
    )
    SELECT 0, NULL::bytea, now_us, d.revision, NULL::bigint, NULL::bigint FROM decided AS d
    UNION ALL
    SELECT -no.turn, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint
        FROM decided AS d, unnest(d.refused) AS no (turn)
    UNION ALL
    SELECT f.place, f.value, f.created, f.revision,
            CASE WHEN f.how = 2 AND f.turn <> ALL (d.refused) THEN f.touches + 1 ELSE f.touches END,
            -- Nothing stays nothing: of null and a number the greatest would be the number.
            CASE WHEN f.how = 2 AND f.turn <> ALL (d.refused) AND f.expires_us IS NOT NULL
                THEN greatest(f.expires_us - now_us, ttls_us[f.place]) ELSE f.expires_us - now_us END
        FROM decided AS d, found AS f
        WHERE f.lives AND (f.how IN (2, 3) OR f.turn = ANY (d.refused));
END
$$;

-- Names whose time to be looked at has come.
CREATE FUNCTION @schema@.due_names(at_most integer) RETURNS TABLE (part smallint, name bytea)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    now_us bigint := @schema@.clock_us();
BEGIN
    RETURN QUERY SELECT r.part, r.name FROM @schema@.records AS r
        WHERE r.due_us IS NOT NULL AND r.due_us <= now_us ORDER BY r.due_us LIMIT at_most;
END
$$;

-- What nodes of older versions look for it by, every second or so. It answers the same, and says that they are there: they
-- don't say so themselves, and others tell nothing while they believe to be alone. The number is nobody's.
CREATE OR REPLACE FUNCTION @schema@.due_records(at_most integer) RETURNS TABLE (part smallint, name bytea)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    PERFORM pg_notify('baton_@schema@', 'ffffffffffffffff');
    RETURN QUERY SELECT due.part, due.name FROM @schema@.due_names(at_most) AS due;
END
$$;
