-- Version 3: meters are charged where they are kept, so that nobody has to read them first and be too late with what was
-- decided. What a charge does is said in baton_core::meter, in Rust; here it is once more, and a law compares the two charge
-- by charge. Numbers are below 2^53, and so are products where it says so there: a bigint holds all of them exactly.

-- These few are expressions, and are made part of whichever they are used in.

CREATE FUNCTION @schema@.meter_divided_up(dividend bigint, divisor bigint)
RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT (dividend + divisor - 1) / divisor
$$;

-- Where a window begins that is one of many of the same length.
CREATE FUNCTION @schema@.meter_start_every(moment_ms bigint, window_ms bigint, offset_ms bigint)
RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT greatest(moment_ms - (moment_ms % window_ms + window_ms - offset_ms) % window_ms, 0)
$$;

-- Where a window of a rule begins; a second edge of 0 says that the first is an offset.
CREATE FUNCTION @schema@.meter_start_of(
    moment_ms bigint, window_ms bigint, first_ms bigint, second_ms bigint, third_ms bigint
) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN second_ms = 0 THEN @schema@.meter_start_every(moment_ms, window_ms, first_ms)
        WHEN moment_ms >= third_ms THEN third_ms
        WHEN moment_ms >= second_ms THEN second_ms
        ELSE first_ms
    END
$$;

-- What is counted after more came; not for logs.
CREATE FUNCTION @schema@.meter_added(algorithm text, window_ms bigint, counted bigint, amount bigint)
RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE algorithm
        WHEN 'b' THEN least(counted + least(amount, 9007199254740991 / window_ms) * window_ms, 9007199254740991)
        WHEN 'i' THEN counted
        WHEN 'f' THEN least(counted + amount, 9007199254740991)
        ELSE least(counted + amount, 4503599627370496 / window_ms)
    END
$$;

-- What is counted in whole units, rounded up; not for logs. `into_ms`: how much of the window has passed.
CREATE FUNCTION @schema@.meter_used(
    algorithm text, window_ms bigint, into_ms bigint, counted bigint, previous bigint
) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE algorithm
        WHEN 'b' THEN @schema@.meter_divided_up(counted, window_ms)
        WHEN 's' THEN counted + @schema@.meter_divided_up(
            previous * (window_ms - least(greatest(into_ms, 0), window_ms)), window_ms)
        WHEN 'f' THEN counted
        ELSE 0
    END
$$;

-- A log is pairs of a time and an amount, earliest first. These two are for logs what the last two are for the others.

CREATE FUNCTION @schema@.meter_log_added(pairs bigint[], moment_ms bigint, amount bigint)
RETURNS bigint[] LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    last integer := cardinality(pairs);
BEGIN
    IF last >= 2000 OR pairs[last - 1] = moment_ms THEN
        pairs[last - 1] := moment_ms;
        pairs[last] := least(pairs[last] + amount, 9007199254740991);
    ELSE
        pairs := pairs || ARRAY[moment_ms, amount];
    END IF;
    RETURN pairs;
END
$$;

CREATE FUNCTION @schema@.meter_log_used(pairs bigint[]) RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    used bigint := 0;
BEGIN
    FOR place IN 2 .. cardinality(pairs) BY 2 LOOP
        used := used + pairs[place];
    END LOOP;
    RETURN least(used, 9007199254740991);
END
$$;

-- What one claim does to one meter, `charge` in baton_core::meter. Both are texts, as they are laid out there. It is said to be
-- IMMUTABLE, which it is, because then no statement in it needs a snapshot.
--
-- value: the meter afterwards; null if it can't be read, or follows the newer version `outdated`
-- worth_ms: for how long it is worth keeping
-- is_refused: that nothing of the whole charge may be done
-- is_look: that nothing needs to be written
CREATE FUNCTION @schema@.charge_meter(
    meter text, claim text, now_ms bigint,
    OUT value text, OUT granted bigint, OUT wait_ms bigint, OUT worth_ms bigint,
    OUT outdated bigint, OUT is_refused boolean, OUT is_look boolean
) LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    claimed         text[] := string_to_array(claim, ' ');
    rule_version    bigint := claimed[1];
    rule_algorithm  text   := claimed[2];
    rule_per_window bigint := claimed[3];
    rule_window_ms  bigint := claimed[4];
    capacity        bigint := claimed[5];
    first_ms        bigint := claimed[6];
    second_ms       bigint := claimed[7];
    third_ms        bigint := claimed[8];
    rule_offset_ms  bigint := CASE WHEN second_ms = 0 THEN first_ms ELSE rule_window_ms END;
    take            text   := claimed[10];
    amount          bigint := claimed[11];
    extra           bigint := claimed[12];
    row_id          text   := claimed[13];
    has_row         boolean := row_id <> '-';

    fields      text[];
    algorithm   text;
    per_window  bigint;
    window_ms   bigint;
    offset_ms   bigint;
    since_ms    bigint;
    at_ms       bigint;
    start_ms    bigint;
    counted     bigint := 0;
    previous    bigint := 0;
    pairs       bigint[] := '{}';
    promised    text[] := '{}';  -- rows, each of seven: id, owner, kind, amount, spent, sequence, expires

    moment_ms   bigint;
    has_shape   boolean;
    is_due      boolean;
    until_ms    bigint;
    elapsed_ms  bigint;
    begun_ms    bigint;
    more        bigint;
    oldest      integer;
    place       integer;
    own         integer;
    outstanding bigint := 0;
    others      bigint := 0;
    kept        bigint := 0;
    room        bigint;
    used        bigint;
BEGIN
    granted := 0;
    wait_ms := 0;

    IF meter IS NULL THEN
        algorithm := rule_algorithm;
        per_window := rule_per_window;
        window_ms := rule_window_ms;
        offset_ms := rule_offset_ms;
        since_ms := now_ms;
        at_ms := now_ms;
        start_ms := @schema@.meter_start_of(now_ms, window_ms, first_ms, second_ms, third_ms);
        moment_ms := now_ms;
        has_shape := true;
    ELSE
        fields := string_to_array(meter, ' ');
        IF fields[1] IS DISTINCT FROM '1' OR cardinality(fields) < 13 THEN
            RETURN;
        END IF;
        algorithm := fields[3];
        per_window := fields[4];
        window_ms := fields[5];
        offset_ms := fields[6];
        since_ms := fields[7];
        at_ms := fields[8];
        start_ms := fields[9];
        counted := fields[10];
        previous := fields[11];
        IF cardinality(fields) > 13 OR fields[13] <> '0' THEN
            place := 13 + 2 * fields[12]::integer;
            pairs := fields[13 : place - 1]::bigint[];
            promised := fields[place + 1 :];
            IF cardinality(promised) IS DISTINCT FROM 7 * fields[place]::integer THEN
                RETURN;
            END IF;
        END IF;
        IF fields[2]::bigint > rule_version THEN
            outdated := fields[2];
            RETURN;
        END IF;
        moment_ms := greatest(now_ms, at_ms);
        has_shape := algorithm = rule_algorithm AND window_ms = rule_window_ms AND offset_ms = rule_offset_ms;

        -- Up to each row that has expired, which is counted then, and at last up to now.
        place := 1;
        LOOP
            is_due := coalesce(promised[place + 6]::bigint <= moment_ms, false);
            until_ms := moment_ms;
            IF is_due THEN
                place := place + 7;
                CONTINUE WHEN promised[place - 5] = 'P' OR algorithm = 'i'
                    OR (promised[place - 5] = 'L' AND claimed[9] = '1');
                until_ms := promised[place - 1];
            END IF;
            IF until_ms > at_ms THEN
                elapsed_ms := until_ms - at_ms;
                at_ms := until_ms;
                IF algorithm = 'b' THEN
                    counted := CASE WHEN elapsed_ms >= @schema@.meter_divided_up(counted, per_window) THEN 0
                        ELSE counted - per_window * elapsed_ms END;
                ELSIF algorithm = 'l' THEN
                    oldest := 1;
                    WHILE pairs[oldest] + window_ms <= at_ms LOOP
                        oldest := oldest + 2;
                    END LOOP;
                    IF oldest > 1 THEN
                        pairs := pairs[oldest :];
                    END IF;
                ELSIF algorithm <> 'i' THEN
                    begun_ms := CASE
                        WHEN has_shape
                            THEN @schema@.meter_start_of(at_ms, window_ms, first_ms, second_ms, third_ms)
                        WHEN offset_ms = window_ms THEN start_ms
                        ELSE @schema@.meter_start_every(at_ms, window_ms, offset_ms)
                    END;
                    -- A window that is yet to begin, as somebody's calendar says whose clock is ahead, ends none.
                    IF begun_ms > start_ms AND begun_ms <= at_ms THEN
                        previous := CASE WHEN algorithm = 's' AND begun_ms - start_ms <= window_ms THEN counted ELSE 0 END;
                        counted := 0;
                        start_ms := begun_ms;
                    END IF;
                END IF;
            END IF;
            EXIT WHEN NOT is_due;
            more := promised[place - 4];
            IF algorithm = 'l' THEN
                pairs := @schema@.meter_log_added(pairs, at_ms, more);
            ELSE
                counted := @schema@.meter_added(algorithm, window_ms, counted, more);
            END IF;
        END LOOP;
        IF place > 1 THEN
            promised := promised[place :];
        END IF;

        -- A newer definition: what was used stays used, up to the new limit if it counts another way now.
        IF has_shape AND algorithm = 'b' AND rule_per_window < per_window THEN
            -- What was taken before leaked faster than a credit would reckon.
            since_ms := at_ms;
        END IF;
        per_window := rule_per_window;
        IF NOT has_shape THEN
            more := least(per_window, CASE WHEN algorithm = 'l' THEN @schema@.meter_log_used(pairs)
                ELSE @schema@.meter_used(algorithm, window_ms, at_ms - start_ms, counted, previous) END);
            algorithm := rule_algorithm;
            window_ms := rule_window_ms;
            offset_ms := rule_offset_ms;
            -- Of what was taken in this millisecond before, a part may just have been cut off.
            since_ms := least(at_ms + 1, 9007199254740991);
            start_ms := @schema@.meter_start_of(at_ms, window_ms, first_ms, second_ms, third_ms);
            previous := 0;
            counted := 0;
            pairs := '{}';
            IF algorithm <> 'l' THEN
                counted := @schema@.meter_added(algorithm, window_ms, 0, more);
            ELSIF more > 0 THEN
                pairs := ARRAY[at_ms, more];
            END IF;
        END IF;
    END IF;

    FOR place IN 1 .. cardinality(promised) BY 7 LOOP
        outstanding := outstanding + promised[place + 3]::bigint;
        IF promised[place] = row_id THEN
            own := place;
        ELSIF promised[place + 2] = 'L' THEN
            others := others + 1;
        END IF;
    END LOOP;

    IF claimed[17]::bigint <= promised[own + 5]::bigint THEN
        -- A message that came before, or late.
        IF claimed[17]::bigint = promised[own + 5]::bigint THEN
            granted := promised[own + 3];
        END IF;
    ELSIF take = 'c' AND NOT has_row THEN
        IF extra < since_ms OR extra > at_ms THEN
            NULL;
        ELSIF algorithm = 'b' THEN
            -- What has leaked since is there again already.
            more := least(amount, 9007199254740991 / window_ms) * window_ms;
            IF at_ms - extra < @schema@.meter_divided_up(more, per_window) THEN
                more := least(more - (at_ms - extra) * per_window, counted);
                counted := counted - more;
                granted := @schema@.meter_divided_up(more, window_ms);
            END IF;
        ELSIF algorithm = 'l' THEN
            FOR place IN 1 .. cardinality(pairs) BY 2 LOOP
                IF pairs[place] = extra THEN
                    granted := least(amount, pairs[place + 1]);
                    pairs[place + 1] := pairs[place + 1] - granted;
                    IF pairs[place + 1] = 0 THEN
                        pairs := pairs[: place - 1] || pairs[place + 2 :];
                    END IF;
                    EXIT;
                END IF;
            END LOOP;
        ELSIF algorithm <> 'i' AND extra >= start_ms THEN
            granted := least(amount, counted);
            counted := counted - granted;
        END IF;
    ELSE
        -- A report: what was spent of the row is counted, and its owner keeps no more than it had.
        IF own IS NOT NULL THEN
            more := greatest(claimed[18]::bigint - promised[own + 4]::bigint, 0);
            kept := least(claimed[19]::bigint, greatest(promised[own + 3]::bigint - more, 0));
            outstanding := outstanding - promised[own + 3]::bigint;
            promised := promised[: own - 1] || promised[own + 7 :];
            IF algorithm <> 'l' THEN
                counted := @schema@.meter_added(algorithm, window_ms, counted, more);
            ELSIF more > 0 THEN
                pairs := @schema@.meter_log_added(pairs, at_ms, more);
            END IF;
        END IF;

        IF has_row AND cardinality(promised) >= 7000 THEN
            NULL;
        ELSIF take = 'a' OR take = 't' OR take = 's' THEN
            used := CASE WHEN algorithm = 'l' THEN @schema@.meter_log_used(pairs)
                ELSE @schema@.meter_used(algorithm, window_ms, at_ms - start_ms, counted, previous) END;
            room := greatest(capacity - used - outstanding - kept, 0);
            IF take = 's' THEN
                granted := least(
                    amount, greatest(per_window / 20, 1), greatest(room / (2 * (others + 1)), 1), room);
            ELSIF amount <= room THEN
                granted := amount;
            END IF;
        ELSIF take = 'f' THEN
            granted := amount;
        ELSIF take = 'b' AND outstanding + amount - capacity <= per_window THEN
            more := greatest(counted + (outstanding + amount - capacity) * window_ms, 0);
            more := @schema@.meter_divided_up(more, per_window);
            IF more <= window_ms AND more <= extra THEN
                wait_ms := more;
                granted := amount;
            END IF;
        END IF;

        IF NOT has_row THEN
            IF algorithm <> 'l' THEN
                counted := @schema@.meter_added(algorithm, window_ms, counted, granted);
            ELSIF granted > 0 THEN
                pairs := @schema@.meter_log_added(pairs, at_ms, granted);
            END IF;
        ELSIF kept + granted > 0 THEN
            until_ms := least(moment_ms + claimed[16]::bigint, 9007199254740991);
            place := cardinality(promised);
            WHILE promised[place]::bigint > until_ms LOOP
                place := place - 7;
            END LOOP;
            promised := promised[: place]
                || ARRAY[row_id, claimed[14], claimed[15], (kept + granted)::text, claimed[18], claimed[17], until_ms::text]
                || promised[place + 1 :];
            outstanding := outstanding + kept + granted;
        END IF;
    END IF;

    is_refused := (take = 'a' OR take = 'b') AND granted < amount;
    is_look := amount = 0 AND NOT has_row;
    worth_ms := 2 * window_ms;
    IF algorithm = 'b' THEN
        worth_ms := worth_ms + CASE WHEN outstanding > 4503599627370496 / window_ms THEN 9007199254740991
            ELSE @schema@.meter_divided_up(outstanding * window_ms + counted, per_window) END;
    END IF;
    value := concat_ws(' ', '1', rule_version, algorithm, per_window, window_ms, offset_ms, since_ms, at_ms, start_ms,
        counted, previous, cardinality(pairs) / 2);
    IF cardinality(pairs) > 0 THEN
        value := value || ' ' || array_to_string(pairs, ' ');
    END IF;
    IF cardinality(promised) > 0 THEN
        value := concat_ws(' ', value, cardinality(promised) / 7, array_to_string(promised, ' '));
        worth_ms := worth_ms + greatest(promised[cardinality(promised)]::bigint - at_ms, 0);
    ELSE
        value := value || ' 0';
    END IF;
    worth_ms := least(worth_ms, 9007199254740991);
END
$$;

-- Charges, one after the other, each as if alone. What they do to a meter together is written once. It must be VOLATILE and run
-- in READ COMMITTED, as a commit, and has its order: locks, clock, reading, revision, writes.
--
-- locks: sorted, one for each key
-- parts, names: the keys of all of them, once each; a place is one of these, from 1
-- counts: of each charge how many claims it has
-- places, claims: the claims of the first one, then those of the second one, and so on
-- memo_places, memo_heads, memo_ttls_us: of each charge where its memo is, what that begins with, and for how long it is kept;
--     null if it has none
--
-- A row for each charge: the answer, or if it is repeated the memo. Null if a meter can't be read: then nothing was done.
CREATE FUNCTION @schema@.charge_meters(
    locks bigint[], parts smallint[], names bytea[],
    counts integer[], places integer[], claims text[],
    memo_places integer[], memo_heads bytea[], memo_ttls_us bigint[]
) RETURNS TABLE (turn integer, repeated boolean, answer bytea)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    latch    bigint;
    is_held  boolean;
    now_us   bigint;
    now_ms   bigint;
    present  bytea;
    stored   bytea[] := '{}';    -- by place: what is there, or will be
    is_live  boolean[] := '{}';  -- by place: whether it was there
    ttls_us  bigint[] := '{}';   -- by place, of what is to be written
    before   integer := 0;       -- claims of the charges before this one
    effect   record;
    drafts   text[];             -- what this charge wants to write
    worths   bigint[];
    verdict  text;
    refuser  integer;            -- which claim it is due to, from 0
    newest   bigint;             -- the version that this claim is behind
    lines    text;
    place    integer;
    drawn    bigint;
    settled  boolean;
BEGIN
    FOREACH latch IN ARRAY locks LOOP
        -- An expression costs less than a statement.
        is_held := pg_advisory_xact_lock(latch) IS NOT NULL;
    END LOOP;
    now_us := @schema@.clock_us();
    now_ms := now_us / 1000;

    FOR place IN 1 .. cardinality(names) LOOP
        SELECT r.value INTO present FROM @schema@.records AS r
            WHERE r.part = parts[place] AND r.name = names[place] AND (r.expires_us IS NULL OR r.expires_us > now_us);
        is_live[place] := FOUND;
        stored[place] := present;
    END LOOP;

    FOR charge IN 1 .. cardinality(counts) LOOP
        turn := charge;
        answer := stored[memo_places[charge]];
        repeated := answer IS NOT NULL;
        verdict := 'C';
        refuser := 0;
        newest := 0;
        lines := '';
        drafts := '{}';
        worths := '{}';
        FOR index IN 1 .. CASE WHEN repeated THEN 0 ELSE counts[charge] END LOOP
            place := places[before + index];
            effect := @schema@.charge_meter(convert_from(stored[place], 'UTF8'), claims[before + index], now_ms);
            IF effect.value IS NULL THEN
                -- Unreadable, or outdated: nothing more is said of either.
                verdict := CASE WHEN effect.outdated IS NULL THEN 'U' ELSE 'O' END;
                refuser := index - 1;
                newest := effect.outdated;
                lines := '';
                EXIT;
            END IF;
            IF effect.is_refused AND verdict = 'C' THEN
                verdict := 'R';
                refuser := index - 1;
            END IF;
            lines := concat(lines, E'\n', effect.granted, ' ', effect.wait_ms, ' ', effect.value);
            drafts[index] := CASE WHEN NOT effect.is_look THEN effect.value END;
            worths[index] := effect.worth_ms;
        END LOOP;

        IF NOT repeated AND verdict <> 'U' THEN
            answer := convert_to(concat_ws(' ', verdict, now_ms, refuser, newest) || lines, 'UTF8');
        END IF;
        RETURN NEXT;
        IF NOT repeated AND verdict = 'C' THEN
            FOR index IN 1 .. counts[charge] LOOP
                place := places[before + index];
                IF drafts[index] IS NOT NULL THEN
                    stored[place] := convert_to(drafts[index], 'UTF8');
                    -- A minute longer than it is worth, so that its expiry need not move each time.
                    ttls_us[place] := (worths[index] + 60000) * 1000;
                END IF;
            END LOOP;
            place := memo_places[charge];
            IF place IS NOT NULL THEN
                stored[place] := memo_heads[charge] || answer;
                ttls_us[place] := memo_ttls_us[charge];
            END IF;
        END IF;
        before := before + counts[charge];
    END LOOP;

    IF cardinality(ttls_us) = 0 THEN
        RETURN;
    END IF;
    SELECT nextval('@schema@.revisions'::regclass),
        e.sequence_oid = '@schema@.revisions'::regclass::oid AND e.server_started = pg_postmaster_start_time()
        INTO drawn, settled FROM @schema@.epoch AS e;
    IF settled IS NOT TRUE OR drawn < now_us - 60000000 THEN
        PERFORM @schema@.settle();
        drawn := nextval('@schema@.revisions'::regclass);
    END IF;
    FOR place IN 1 .. cardinality(names) LOOP
        IF ttls_us[place] IS NULL THEN
            CONTINUE;
        ELSIF is_live[place] THEN
            -- As long as half of that minute is left its expiry stays, and with it all that is indexed.
            UPDATE @schema@.records AS r SET
                value = stored[place],
                revision = drawn,
                expires_us = CASE WHEN r.expires_us >= now_us + ttls_us[place] - 30000000 THEN r.expires_us
                    ELSE now_us + ttls_us[place] END,
                due_us = CASE WHEN r.expires_us >= now_us + ttls_us[place] - 30000000 THEN r.due_us
                    ELSE now_us + ttls_us[place] END
                WHERE r.part = parts[place] AND r.name = names[place];
        ELSE
            -- One that has expired may still be there.
            INSERT INTO @schema@.records AS r (part, name, value, created, revision, touches, expires_us, due_us)
                VALUES (parts[place], names[place], stored[place], drawn, drawn, 0,
                    now_us + ttls_us[place], now_us + ttls_us[place])
                ON CONFLICT (part, name) DO UPDATE SET
                    value = excluded.value,
                    created = excluded.created,
                    revision = excluded.revision,
                    touches = 0,
                    expires_us = excluded.expires_us,
                    due_us = excluded.due_us;
        END IF;
    END LOOP;
END
$$;
