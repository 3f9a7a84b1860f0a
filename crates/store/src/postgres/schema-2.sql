-- Version 2: several commits in one transaction, so that those who come at the same time share its costs and its sync.

-- Each commit as `commit_records` would do it, and as if alone: who is refused changes nothing and keeps nobody else
-- from anything. No two of them may be about one name. The same order as there: locks, clock, checks, revisions, writes.
--
-- locks: sorted, one for each key of all of them
-- groups: one for each commit; its turn is its place there, from 1
-- checks and changes: as in commit_records, each with the turn of its commit
--
-- Rows in any order. Place 0 is the commit itself: revision is its own, null for a conflict; created is the clock. The
-- others are for its changes (what was deleted and wasn't there has none), or for a conflict for its checks, in order.
CREATE FUNCTION @schema@.commit_batch(
    locks bigint[], groups smallint[],
    check_turns integer[], check_kinds smallint[], check_names bytea[], check_revisions bigint[],
    put_turns integer[], put_names bytea[], put_values bytea[], put_ttls_us bigint[],
    change_turns integer[], change_kinds smallint[], change_names bytea[], change_ttls_us bigint[]
) RETURNS TABLE (
    turn integer, place bigint,
    present boolean, value bytea, created bigint, revision bigint, touches bigint, left_us bigint
)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    now_us  bigint;
    refused integer[];
    drawn   bigint;
    draws   bigint[];
    settled boolean;
BEGIN
    PERFORM pg_advisory_xact_lock(lock) FROM unnest(locks) AS lock;
    now_us := @schema@.clock_us();

    SELECT coalesce(array_agg(DISTINCT asked.turn), '{}') INTO refused
        FROM unnest(check_turns, check_kinds, check_names, check_revisions) AS asked (turn, kind, name, revision)
        LEFT JOIN @schema@.records AS r
            ON r.part = groups[asked.turn] AND r.name = asked.name
            AND (r.expires_us IS NULL OR r.expires_us > now_us)
        WHERE CASE asked.kind
            WHEN 0 THEN r.name IS NOT NULL
            WHEN 1 THEN r.created IS DISTINCT FROM asked.revision
            WHEN 2 THEN r.revision IS DISTINCT FROM asked.revision
            ELSE r.name IS NULL
        END;
    IF cardinality(refused) > 0 THEN
        RETURN QUERY SELECT asked.turn, asked.place,
                r.name IS NOT NULL, r.value, r.created, r.revision, r.touches, r.expires_us - now_us
            FROM unnest(check_turns, check_names) WITH ORDINALITY AS asked (turn, name, place)
            LEFT JOIN @schema@.records AS r
                ON r.part = groups[asked.turn] AND r.name = asked.name
                AND (r.expires_us IS NULL OR r.expires_us > now_us)
            WHERE asked.turn = ANY (refused);
    END IF;
    IF cardinality(refused) < cardinality(groups) THEN
        -- One first: should the sequence have to be raised, `settle` counts on it.
        SELECT nextval('@schema@.revisions'::regclass),
            e.sequence_oid = '@schema@.revisions'::regclass::oid AND e.server_started = pg_postmaster_start_time()
            INTO drawn, settled FROM @schema@.epoch AS e;
        IF settled IS NOT TRUE OR drawn < now_us - 60000000 THEN
            PERFORM @schema@.settle();
            drawn := nextval('@schema@.revisions'::regclass);
        END IF;
        draws := drawn || ARRAY(
            SELECT nextval('@schema@.revisions'::regclass) FROM generate_series(2, cardinality(groups)));
    END IF;
    RETURN QUERY SELECT turn, 0::bigint, turn <> ALL (refused), NULL::bytea, now_us,
            CASE WHEN turn <> ALL (refused) THEN draws[turn] END, NULL::bigint, NULL::bigint
        FROM generate_subscripts(groups, 1) AS turn;

    IF cardinality(put_turns) > 0 THEN
        INSERT INTO @schema@.records AS r (part, name, value, created, revision, touches, expires_us, due_us)
            SELECT groups[put.turn], put.name, put.value, draws[put.turn], draws[put.turn], 0,
                now_us + put.ttl_us, now_us + put.ttl_us
            FROM unnest(put_turns, put_names, put_values, put_ttls_us) AS put (turn, name, value, ttl_us)
            WHERE put.turn <> ALL (refused)
            ON CONFLICT (part, name) DO UPDATE SET
                value = excluded.value,
                created = CASE WHEN r.expires_us <= now_us THEN excluded.created ELSE r.created END,
                revision = excluded.revision,
                touches = CASE WHEN r.expires_us <= now_us THEN 0 ELSE r.touches END,
                expires_us = excluded.expires_us,
                due_us = excluded.due_us;
    END IF;
    IF 1 = ANY (change_kinds) THEN
        RETURN QUERY UPDATE @schema@.records AS r SET
                touches = r.touches + 1,
                expires_us = CASE WHEN r.expires_us IS NULL THEN NULL
                    ELSE greatest(r.expires_us, now_us + change.ttl_us) END
            FROM unnest(change_turns, change_kinds, change_names, change_ttls_us) WITH ORDINALITY
                AS change (turn, kind, name, ttl_us, place)
            WHERE change.kind = 1 AND change.turn <> ALL (refused)
                AND r.part = groups[change.turn] AND r.name = change.name
            RETURNING change.turn, change.place,
                true, r.value, r.created, r.revision, r.touches, r.expires_us - now_us;
    END IF;
    IF 2 = ANY (change_kinds) THEN
        RETURN QUERY DELETE FROM @schema@.records AS r
            USING unnest(change_turns, change_kinds, change_names) WITH ORDINALITY AS change (turn, kind, name, place)
            WHERE change.kind = 2 AND change.turn <> ALL (refused)
                AND r.part = groups[change.turn] AND r.name = change.name
            RETURNING change.turn, change.place, r.expires_us IS NULL OR r.expires_us > now_us,
                r.value, r.created, r.revision, r.touches, r.expires_us - now_us;
    END IF;
END
$$;
