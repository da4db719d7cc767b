-- name: sources
SELECT w.name, p.prosrc FROM unnest(CAST(:names AS text[])) AS w (name)
  JOIN pg_proc p ON p.oid = to_regprocedure(w.name);

-- name: unwanted
SELECT oid::regprocedure::text FROM pg_proc
 WHERE pronamespace = to_regnamespace(:namespace) AND strpos(prosrc, :mark) > 0
   AND oid <> ALL (ARRAY(SELECT coalesce(to_regprocedure(name)::oid, 0::oid)
                           FROM unnest(CAST(:names AS text[])) AS w (name)));

-- name: is_chunk
-- The body of a function. A wrong message count would assign offsets without messages, and columns that do not fill the
-- chunk would stop its readers. The checksum and the texts are not checked here, but by the readers.
DECLARE
    n int8 := $1;
    size int8 := octet_length($2);
    at int8 := 24;
    kind int4;
BEGIN
    IF n < 1 OR size < at THEN
        RETURN false;
    END IF;
    IF get_byte($2, 0) <> {version} OR get_byte($2, 1) <> {columns} OR n <>
       get_byte($2, 4) + (get_byte($2, 4 + 1)::int8 << 8) + (get_byte($2, 4 + 2)::int8 << 16)
       + (get_byte($2, 4 + 3)::int8 << 24)
       OR get_byte($2, 16) = 0 THEN
        RETURN false;
    END IF;
    FOR place IN 16..23 LOOP
        kind := get_byte($2, place);
        CONTINUE WHEN kind = 0;
        IF kind = 2 THEN
            at := at + (n + 63) / 64 * 8;
        END IF;
        IF kind > 2 OR at + 4 * n + 4 > size THEN
            RETURN false;
        END IF;
        at := at + (n + 2) / 2 * 8
              + (get_byte($2, (at + 4 * n)::int4) + (get_byte($2, (at + 4 * n)::int4 + 1)::int8 << 8)
                 + (get_byte($2, (at + 4 * n)::int4 + 2)::int8 << 16)
                 + (get_byte($2, (at + 4 * n)::int4 + 3)::int8 << 24) + 7) / 8 * 8;
    END LOOP;
    RETURN at = size;
END;

-- name: delete_topic
-- The body of a function: it needs the owner of the tables. The rows stay, under a name that no topic can have, for the
-- messages that are not dropped yet. From the commit on nothing is stored in the queues of deleted topics, whatever a
-- process still knows of them; a transaction that has sent before is waited for, and no message is stored meanwhile.
DECLARE
    place text;
BEGIN
    PERFORM set_config('lock_timeout', '500ms', true);
    PERFORM pg_advisory_xact_lock(hashtextextended('{s}.partitions', 0));
    LOCK TABLE ONLY txsaga.half, ONLY txsaga.cursor, ONLY txsaga.effect IN SHARE ROW EXCLUSIVE MODE;
    PERFORM set_config('lock_timeout', '2s', true);  -- of a partition: longer than the server takes to stop its vacuum
    UPDATE txsaga.topic SET name = name || '~' || id, retention_seconds = 0, retention_bytes = NULL WHERE id = $1;
    FOREACH place IN ARRAY ARRAY['half', 'cursor', 'effect'] LOOP
        EXECUTE format('CREATE OR REPLACE TRIGGER deleted BEFORE INSERT ON txsaga.%I FOR EACH ROW'
                       ' WHEN (%s <@ %L::int4multirange) EXECUTE FUNCTION txsaga.refuse_queue()', place,
            CASE place WHEN 'effect' THEN $w$CASE NEW.kind WHEN 'late' THEN CAST(NEW.payload ->> 'qid' AS int4) END$w$
                       ELSE 'NEW.qid' END, (
            SELECT range_agg(int4range(qid, qid, '[]')) FROM txsaga.queue q JOIN txsaga.topic t ON t.id = q.topic
             WHERE strpos(t.name, '~') > 0));
    END LOOP;
END;

-- name: refuse_queue
BEGIN
    RAISE restrict_violation USING MESSAGE = (
        SELECT 'topic ' || split_part(t.name, '~', 1) || ' is deleted'
          FROM txsaga.queue q JOIN txsaga.topic t ON t.id = q.topic
         WHERE q.qid = coalesce(to_jsonb(NEW) ->> 'qid', to_jsonb(NEW) -> 'payload' ->> 'qid')::int4);
END;

-- name: back_out
-- The body of a function: a consumer moves a message to the backout topic of its group, and nowhere else.
BEGIN
    IF EXISTS (SELECT FROM txsaga.queue q JOIN txsaga.topic t ON t.id = q.topic
                WHERE q.qid = $6 AND strpos(t.name, '~') > 0) THEN
        RAISE restrict_violation USING MESSAGE =
            'topic ' || (SELECT backout FROM txsaga.consumer_group WHERE name = $1) || ' is deleted';
    END IF;
    IF NOT EXISTS (SELECT FROM txsaga.queue q JOIN txsaga.topic t ON t.id = q.topic
                     JOIN txsaga.consumer_group g ON g.backout = t.name WHERE q.qid = $6 AND g.name = $1) THEN
        RAISE insufficient_privilege USING MESSAGE = 'queue ' || $6 || ' is not of the backout topic of group ' || $1;
    END IF;
    IF {no_chunk} THEN
        RAISE insufficient_privilege USING MESSAGE = 'that is no chunk of one message';
    END IF;
    {moved};
END;

-- name: answered
-- The body of a function.
BEGIN
    IF NOT $3 <@ ARRAY['COMMIT', 'ROLLBACK', 'UNKNOWN', 'NO_ANSWER'] THEN
        RAISE insufficient_privilege USING MESSAGE = 'that is no answer';
    END IF;
    {answering};
END;
