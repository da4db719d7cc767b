-- name: crc32
-- The body of a function: CRC-32 as zlib computes it. `low` and `high` are the remainders of the halves of a byte.
DECLARE
    low int8[] := '{{0,1996959894,3993919788,2567524794,124634137,1886057615,3915621685,2657392035,'
        '249268274,2044508324,3772115230,2547177864,162941995,2125561021,3887607047,2428444049}}';
    high int8[] := '{{0,498536548,997073096,651767980,1994146192,1802195444,1303535960,1342533948,'
        '3988292384,4027552580,3604390888,3412177804,2607071920,2262029012,2685067896,3183342108}}';
    crc int8 := 4294967295;
BEGIN
    IF octet_length($1) > 1000 AND to_regprocedure('pg_catalog.crc32(bytea)') IS NOT NULL THEN  -- from PostgreSQL 18 on
        EXECUTE 'SELECT pg_catalog.crc32($1)' INTO crc USING $1;
        RETURN crc;
    END IF;
    FOR at IN 0..octet_length($1) - 1 LOOP
        crc := crc # get_byte($1, at);
        crc := low[(crc & 15) + 1] # high[(crc >> 4 & 15) + 1] # (crc >> 8);
    END LOOP;
    RETURN crc # 4294967295;
END;

-- name: send
-- The body of a function: it admits a message as `messages/topics.py` does, and lays it out as `core/chunk.py` does.
DECLARE
    named text[] := ARRAY['body', 'key', 'tag', 'block of headers'];
    most int4[] := ARRAY[4194304, 1024, 255, 32768];
    given bytea[] := ARRAY[$3, convert_to($4, 'UTF8'), convert_to($5, 'UTF8'),
                           convert_to(nullif($6, '{{}}')::text, 'UTF8')];
    kinds bytea := '';
    pieces bytea := '';
    zeros bytea := '\x00000000';
    size bytea;
    head bytea := '\x0108000001000000';  -- layout, columns, messages
    turned text := '(..)(..)(..)(..)';  -- a number as a chunk holds it
    stored bytea;
    type text;
    queues int4[];
    place int4;
    producer int4;
    number int8;
BEGIN
    SELECT t.type, array_agg(q.qid ORDER BY q.idx) INTO type, queues
      FROM txsaga.topic t JOIN txsaga.queue q ON q.topic = t.id WHERE t.name = $2 AND strpos($2, '~') = 0 GROUP BY t.id;
    IF queues IS NULL THEN
        RAISE undefined_object USING MESSAGE = format('topic %L does not exist', $2);
    ELSIF type NOT IN ('normal', 'transaction') THEN
        RAISE invalid_parameter_value USING MESSAGE = format(
            'topic %L is of type %s; a send in your own transaction needs one of type normal or transaction', $2, type);
    ELSIF $3 IS NULL THEN
        RAISE null_value_not_allowed USING MESSAGE = 'the body is NULL; give an empty one';
    ELSIF jsonb_typeof($6) <> 'object' OR jsonb_path_exists(
        $6, 'strict $.* ? (@.type() != "string")', silent => true) THEN
        RAISE invalid_parameter_value USING MESSAGE = 'the headers are no JSON object of texts';
    END IF;
    FOR at IN 1..4 LOOP
        IF octet_length(given[at]) > most[at] THEN
            RAISE program_limit_exceeded USING MESSAGE = format(
                'the %s has %s bytes; at most %s are stored', named[at], octet_length(given[at]), most[at]);
        END IF;
        kinds := kinds || CASE WHEN given[at] IS NULL THEN '\x00' ELSE '\x01' END::bytea;
        size := decode(regexp_replace(lpad(to_hex(octet_length(given[at])), 8, '0'), turned, '\4\3\2\1'), 'hex');
        pieces := pieces || coalesce(
            zeros || size || given[at] || substr(zeros || zeros, 1, -octet_length(given[at]) & 7), '');
    END LOOP;
    pieces := kinds || zeros || pieces;
    size := decode(regexp_replace(lpad(to_hex(txsaga.crc32(head || pieces)), 8, '0'), turned, '\4\3\2\1'), 'hex');
    stored := head || size || zeros || pieces;
    SELECT id INTO producer FROM txsaga.producer_group WHERE name = $1;
    IF producer IS NULL THEN
        IF ($1 ~ '^[[:alnum:]_][[:alnum:]_.%|-]{{0,126}}$' AND $1 !~* '^rmq_sys' AND $1 NOT IN (
            'TRANS_CHECK_MAX_TIME_TOPIC', 'SCHEDULE_TOPIC_XXXX', 'OFFSET_MOVED_EVENT')) IS NOT TRUE THEN
            RAISE reserved_name USING MESSAGE = format('%L is a system name, or no name of a producer group', $1);
        END IF;
        INSERT INTO txsaga.producer_group (name, transactional, role)
        SELECT $1, false, CASE WHEN NOT pg_has_role(session_user, relowner, 'USAGE') THEN session_user END
          FROM pg_class WHERE oid = 'txsaga.half'::regclass ON CONFLICT (name) DO NOTHING;
        SELECT id INTO producer FROM txsaga.producer_group WHERE name = $1;
    END IF;
    IF txsaga.mine(producer) IS NOT TRUE THEN
        RAISE insufficient_privilege USING MESSAGE = format('%s may not act for producer group %L', session_user, $1);
    END IF;
    IF current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    place := queues[1 + CASE WHEN $4 IS NULL THEN floor(random() * cardinality(queues))
                             ELSE txsaga.crc32(given[2]) % cardinality(queues) END::int4];
    {statement messages/joined.send} INTO number;
    RETURN number;
END;

-- name: join
-- The body of a function: the evidence that the caller's commit is the local work of a transaction. Only tables of the
-- namespace's owner or a superuser are trusted. Others may have put triggers on them, which would run with the owner's
-- rights. The lock keeps new ones out; a snapshot may be older than one, so the right counts there.
DECLARE
    parts text[] := regexp_match(
        $1, '^([0-9a-f]{{32}})-([0-9a-f]{{1,8}})-([0-9a-f]{{1,16}})\.[0-9a-f]{{1,8}}\.([0-9a-f]{{64}})$');
    number int8 := ('x' || lpad(parts[3], 16, '0'))::bit(64)::int8;
    life int4 := ('x' || lpad(parts[2], 8, '0'))::bit(32)::int4;
    half record;
    place text;
    evidence oid;
    known text;
    outcome int4;
BEGIN
    SELECT h.pgroup, h.keyed, r.name, replace(r.database::text, '-', '') AS database,
           (SELECT o.decision FROM txsaga.op o WHERE o.txid = h.txid) AS decision INTO half
      FROM txsaga.half h CROSS JOIN txsaga.store s LEFT JOIN txsaga.resource r ON r.id = h.evidence
     WHERE h.txid = number AND replace(s.uuid::text, '-', '') = parts[1]
       AND s.incarnation - (SELECT count(*) FROM unnest(s.births) birth WHERE number <= birth) = life
       AND encode({token}, 'hex') = parts[4] LIMIT 1;
    IF NOT FOUND THEN
        RAISE undefined_object USING MESSAGE = format(
            '%L is no transaction of this store; give the text of its prepare', $1);
    ELSIF txsaga.mine(half.pgroup) IS NOT TRUE THEN
        RAISE insufficient_privilege USING MESSAGE = format('%s may not act for transaction %s', session_user, number);
    ELSIF half.decision IS NOT NULL THEN
        RAISE object_not_in_prerequisite_state USING MESSAGE = format(
            'transaction %s is already decided: %s', number, (ARRAY['COMMIT', 'ROLLBACK'])[half.decision]);
    ELSIF half.name IS NULL OR half.keyed THEN
        RAISE object_not_in_prerequisite_state USING MESSAGE = format(
            'transaction %s was prepared without evidence; prepare it with the name of this database', number);
    END IF;
    FOR place, evidence IN SELECT n.nspname, e.oid FROM pg_class e JOIN pg_class d USING (relnamespace, relowner)
                   JOIN pg_namespace n ON n.oid = e.relnamespace JOIN pg_roles r ON r.oid = e.relowner
                  WHERE (e.relname, d.relname, e.relkind, d.relkind) = ('txsaga_evidence', 'txsaga_database', 'r', 'r')
                    AND (rolsuper OR e.relowner = (SELECT relowner FROM pg_class WHERE oid = 'txsaga.half'::regclass))
                    AND has_schema_privilege(relnamespace, 'USAGE') AND has_table_privilege(d.oid, 'SELECT')
    LOOP
        EXECUTE format('SELECT to_jsonb(d) ->> ''uuid'' FROM %I.txsaga_database d', place) INTO known;
        CONTINUE WHEN known IS DISTINCT FROM half.database;
        EXECUTE format('LOCK TABLE %I.txsaga_evidence IN ROW EXCLUSIVE MODE', place);
        IF EXISTS (SELECT FROM pg_trigger WHERE tgrelid = evidence AND NOT tgisinternal)
           OR current_setting('transaction_isolation') <> 'read committed' AND EXISTS (
              SELECT FROM pg_class c, aclexplode(c.relacl) a
               WHERE c.oid = evidence AND a.privilege_type = 'TRIGGER' AND a.grantee <> c.relowner) THEN
            RAISE object_not_in_prerequisite_state USING MESSAGE = format(
                '%I.txsaga_evidence has a trigger, or others may make one: drop it, and revoke TRIGGER', place);
        END IF;
        IF current_setting('synchronous_commit') = 'off' THEN
            PERFORM set_config('synchronous_commit', 'on', true);
        END IF;
        EXECUTE format('INSERT INTO %I.txsaga_evidence (store, incarnation, txid, branch, outcome)
                        VALUES ($1, $2, $3, '''', 1) ON CONFLICT DO NOTHING RETURNING outcome', place)
           INTO outcome USING parts[1], life, number;
        IF outcome IS NULL THEN
            RAISE object_not_in_prerequisite_state USING MESSAGE = format(
                'transaction %s is rolled back, or another database transaction has joined it', number);
        END IF;
        RETURN number;
    END LOOP;
    RAISE object_not_in_prerequisite_state USING MESSAGE = format(
        'the evidence of transaction %s belongs to resource %L, which is not in this database', number, half.name);
END;
