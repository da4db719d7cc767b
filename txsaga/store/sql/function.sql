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
