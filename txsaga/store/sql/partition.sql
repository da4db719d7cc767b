-- name: one_by_one
SELECT pg_advisory_xact_lock(hashtextextended(:name, 0));

-- name: bounds
SELECT pg_get_expr(c.relpartbound, c.oid) FROM pg_inherits i
  JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = to_regclass(:parent);

-- name: drop_ticks
-- The body of a function. A scan of the sweep goes from its checkpoint to a tick that is old enough: no tick before
-- both checkpoints is read again. The newest one stays, since the next tick begins there.
BEGIN
    DELETE FROM txsaga.tick WHERE id IN (
        SELECT id FROM txsaga.tick
         WHERE id < (SELECT max(id) FROM txsaga.tick)
           AND last_txid <= (SELECT CASE WHEN count(*) = {looks} THEN min(txid) END
                               FROM txsaga.checkpoint WHERE name IN ({names}))
         ORDER BY id LIMIT $1);
END;

-- name: attach_partition
-- The body of a function: it needs the owner of the tables, which the login that runs the roles need not be. Row
-- security is for a login that names the partition past its table.
DECLARE
    high int8 := $2 + {span};
    added text := $1 || '_' || $2 / {span};
    last int8;
BEGIN
    SELECT coalesce(max((regexp_match(pg_get_expr(c.relpartbound, c.oid), 'TO [(]''([0-9]+)''[)]'))[1]::int8), 0)
      INTO last FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
     WHERE i.inhparent = to_regclass(format('txsaga.%I', $1));
    IF $1 NOT IN ('half', 'op') OR $2 % {span} <> 0 OR $2 < 0 OR $2 <> last THEN
        RAISE insufficient_privilege USING MESSAGE = 'that is no partition of this store';
    END IF;
    -- With its indexes, and a check that saves the scan when it is attached.
    EXECUTE format('CREATE TABLE txsaga.%I (LIKE txsaga.%I INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING STORAGE'
                   ' INCLUDING INDEXES, CONSTRAINT bounds CHECK (txid >= %s AND txid < %s))', added, $1, $2, high);
    PERFORM set_config('lock_timeout', '{lock_timeout}', true);
    EXECUTE format('ALTER TABLE txsaga.%I ATTACH PARTITION txsaga.%I FOR VALUES FROM (%s) TO (%s)',
                   $1, added, $2, high);
    EXECUTE format('ALTER TABLE txsaga.%I DROP CONSTRAINT bounds', added);
    EXECUTE format('ALTER TABLE txsaga.%I ENABLE ROW LEVEL SECURITY', added);
END;

-- name: drop_partition
-- The body of a function. Deleting may concern a million rows: meanwhile only writers to this partition wait. The
-- queues are updated last, since every tick writes to them. Rows of a transaction in other tables are deleted if no
-- half of it was copied, and it is not open.
DECLARE
    high int8 := $1 + {span};
    halves text := 'half_' || $1 / {span};
    ops text := 'op_' || $1 / {span};
    last int8;
    copied bool;
    place text;
    qids int4[];
    tails int8[];
BEGIN
    IF $1 < 0 OR $1 % {span} <> 0 OR (
        SELECT count(*) FROM unnest(ARRAY['half', 'op']) t (name) JOIN pg_inherits
            ON inhparent = to_regclass(format('txsaga.%I', t.name))
           AND inhrelid = to_regclass(format('txsaga.%I', t.name || '_' || $1 / {span}))) < 2 THEN
        RAISE insufficient_privilege USING MESSAGE = 'that is no partition of this store';
    END IF;
    EXECUTE format('LOCK TABLE txsaga.%I, txsaga.%I IN SHARE ROW EXCLUSIVE MODE', halves, ops);
    SELECT last_value INTO last FROM txsaga.tx_seq;
    IF last < high THEN RETURN false; END IF;
    {needed}
    copied := ({spares});
    IF copied THEN
        FOREACH place IN ARRAY ARRAY['half', 'op'] LOOP
            EXECUTE format('CREATE TABLE txsaga.%I (LIKE txsaga.%I INCLUDING DEFAULTS INCLUDING CONSTRAINTS'
                           ' INCLUDING STORAGE INCLUDING INDEXES, CONSTRAINT bounds CHECK (txid >= %s AND txid < %s))',
                           place || '_' || $1 / {span} || '_spared', place, $1, high);
        END LOOP;
        EXECUTE format('INSERT INTO txsaga.%I SELECT h.* FROM txsaga.half h WHERE h.txid >= %s AND h.txid < %s'
                       ' AND NOT EXISTS (SELECT FROM txsaga.op o WHERE o.txid = h.txid)',
                       halves || '_spared', $1, high);
    END IF;
    DELETE FROM txsaga.weight WHERE low = $1;
    WITH gone AS (DELETE FROM txsaga.log WHERE txid >= $1 AND txid < high RETURNING qid, base + n AS up_to),
     far AS (SELECT qid, max(up_to) AS up_to FROM gone GROUP BY qid)
    SELECT array_agg(qid), array_agg(up_to) INTO qids, tails FROM far;
    FOREACH place IN ARRAY ARRAY[{places}] LOOP
        EXECUTE format('DELETE FROM txsaga.%I x WHERE x.txid >= %s AND x.txid < %s', place, $1, high)
            || CASE WHEN copied THEN format(
                   ' AND NOT EXISTS (SELECT FROM txsaga.%I h WHERE h.txid = x.txid)'
                   ' AND NOT EXISTS (SELECT FROM txsaga.tx t WHERE t.txid = x.txid'
                   ' AND t.state IN (''active'', ''sealed'', ''prepared'', ''parked''))', halves || '_spared')
                       ELSE '' END;
    END LOOP;
    LOCK TABLE ONLY txsaga.half IN ACCESS EXCLUSIVE MODE;
    PERFORM set_config('lock_timeout', '{locked_timeout}', true);
    EXECUTE format('DROP TABLE txsaga.%I, txsaga.%I', halves, ops);
    IF copied THEN
        FOREACH place IN ARRAY ARRAY['half', 'op'] LOOP
            EXECUTE format('ALTER TABLE txsaga.%I ATTACH PARTITION txsaga.%I FOR VALUES FROM (%s) TO (%s)',
                           place, place || '_' || $1 / {span} || '_spared', $1, high);
            EXECUTE format('ALTER TABLE txsaga.%I DROP CONSTRAINT bounds', place || '_' || $1 / {span} || '_spared');
            EXECUTE format('ALTER TABLE txsaga.%I ENABLE ROW LEVEL SECURITY', place || '_' || $1 / {span} || '_spared');
            EXECUTE format('ALTER TABLE txsaga.%I RENAME TO %I',
                           place || '_' || $1 / {span} || '_spared', place || '_' || $1 / {span});
        END LOOP;
    END IF;
    UPDATE txsaga.queue q SET tail = greatest(q.tail, g.up_to) FROM unnest(qids, tails) g (qid, up_to)
     WHERE q.qid = g.qid;
    RETURN true;
END;
