-- name: ask
WITH lead AS MATERIALIZED (
    SELECT FROM txsaga.lease WHERE (kind, name, holder, epoch) = (%(kind)s, %(name)s, %(holder)s, %(epoch)s)
       AND until > clock_timestamp() FOR SHARE),
 x AS (
    SELECT * FROM unnest(%(txids)s::int8[], %(groups)s::int4[], %(members)s::text[], %(intervals)s::float8[],
                         %(patience)s::float8[]) AS x(txid, pgroup, member, interval, patience)),
 d AS (
    UPDATE txsaga.doubt SET checks = checks + 1, check_at = clock_timestamp() + x.interval * interval '1 second'
      FROM x, lead WHERE doubt.txid = x.txid AND doubt.parked IS NULL
       AND (SELECT o.txid FROM txsaga.op o WHERE o.txid = x.txid) IS NULL
       AND (SELECT q.txid FROM txsaga.question q WHERE q.txid = x.txid) IS NULL
    RETURNING x.txid, x.pgroup, x.member, x.patience)
INSERT INTO txsaga.question (txid, pgroup, member, patience)
SELECT txid, pgroup, member, patience * interval '1 second' FROM d RETURNING txid;

-- name: take
-- Not what was decided since it was asked: nobody is to hear of that.
WITH t AS MATERIALIZED (
    SELECT txid FROM txsaga.question q WHERE member = %(member)s AND until IS NULL{mine}
       AND (SELECT o.txid FROM txsaga.op o WHERE o.txid = q.txid) IS NULL
     ORDER BY asked LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
UPDATE txsaga.question q SET until = clock_timestamp() + q.patience FROM t WHERE q.txid = t.txid RETURNING q.txid;

-- name: asked
SELECT q.txid, q.pgroup, {token}, t.txid IS NOT NULL, coalesce(t.evidence, h.evidence), coalesce(t.opened, h.born),
       coalesce(d.checks, 0), clock_timestamp() - coalesce(t.opened, h.born), t.run, t.key,
       q.patience
  FROM txsaga.question q LEFT JOIN txsaga.tx t USING (txid) LEFT JOIN txsaga.doubt d USING (txid)
  LEFT JOIN LATERAL (SELECT evidence, born FROM txsaga.half WHERE half.txid = q.txid LIMIT 1) h ON true
 WHERE q.txid = ANY (%(txids)s) ORDER BY q.txid;

-- name: answered
-- Decided transactions leave the list of doubts, with their checks as history; the others keep a remark, and an answer
-- without a checker does not count.
WITH x AS (
    SELECT * FROM unnest(%(txids)s::int8[], %(answers)s::text[], %(whys)s::text[]) AS x(txid, answer, why)),
 q AS (
    DELETE FROM txsaga.question USING x WHERE question.txid = x.txid AND question.member = %(member)s{mine}
    RETURNING question.pgroup, x.*),
 decided AS (SELECT * FROM q WHERE q.answer NOT IN ('UNKNOWN', 'NO_ANSWER'){decided}),
 gone AS (
    DELETE FROM txsaga.doubt USING decided WHERE doubt.txid = decided.txid RETURNING doubt.txid, doubt.remarks),
 history AS (
    INSERT INTO txsaga.event (txid, at, what, who, why)
    SELECT gone.txid, CAST(r ->> 'at' AS timestamptz), 'CHECK ' || (r ->> 'answer'), r ->> 'who', r ->> 'why'
  FROM gone, jsonb_array_elements(gone.remarks) AS r
     UNION ALL
    SELECT txid, clock_timestamp(), 'CHECK ' || answer, %(member)s::text, left(why, 500) FROM decided),
 told AS (
    UPDATE txsaga.doubt d SET remarks = {remark}, checks = d.checks - (q.answer = 'NO_ANSWER')::int,
           check_at = CASE q.answer WHEN 'NO_ANSWER' THEN clock_timestamp() ELSE d.check_at END
      FROM q WHERE d.txid = q.txid AND q.answer IN ('UNKNOWN', 'NO_ANSWER'))
INSERT INTO txsaga.tally (pgroup, answer, n)
SELECT pgroup, answer, count(*) FROM q GROUP BY 1, 2 ORDER BY 1, 2
    ON CONFLICT (pgroup, answer) DO UPDATE SET n = tally.n + excluded.n;

-- name: collect
-- A decided question that its member took up is left to the member: it removes it soon, in an order of its own, and the
-- two would deadlock. So would a member that answers just when its time is over.
WITH o AS MATERIALIZED (
    SELECT q.txid, (SELECT o.txid FROM txsaga.op o WHERE o.txid = q.txid) IS NOT NULL AS decided FROM txsaga.question q
     WHERE q.until <= clock_timestamp()
        OR (q.until IS NULL AND q.asked + {turns} * q.patience <= clock_timestamp())
        OR NOT EXISTS (SELECT FROM txsaga.lease l WHERE l.kind = 'checker:' || q.pgroup AND l.name = q.member
              AND l.until > clock_timestamp())
        OR (q.until IS NULL AND (SELECT o.txid FROM txsaga.op o WHERE o.txid = q.txid) IS NOT NULL)
       FOR UPDATE SKIP LOCKED),
 gone AS (
    DELETE FROM txsaga.question q USING o WHERE q.txid = o.txid
    RETURNING q.txid, q.pgroup, q.member, q.until IS NOT NULL AS late, o.decided),
 told AS (
    UPDATE txsaga.doubt d SET remarks = {remark}, checks = d.checks - (NOT g.late)::int,
           check_at = CASE WHEN g.late THEN d.check_at ELSE clock_timestamp() END
      FROM gone g WHERE d.txid = g.txid AND d.txid = ANY (ARRAY(SELECT txid FROM gone))),
 t AS (
    INSERT INTO txsaga.tally (pgroup, answer, n)
    SELECT pgroup, CASE WHEN late THEN 'UNKNOWN' ELSE 'NO_ANSWER' END, count(*) FROM gone
     WHERE NOT decided GROUP BY 1, 2 ORDER BY 1, 2
        ON CONFLICT (pgroup, answer) DO UPDATE SET n = tally.n + excluded.n)
SELECT count(*) FROM gone;

-- name: call_take
SELECT * FROM txsaga.take(%(member)s::text, %(limit)s::int4);

-- name: call_answered
SELECT txsaga.answered(%(member)s::text, %(txids)s::int8[], %(answers)s::text[], %(whys)s::text[]);

-- name: backlog
SELECT member, count(*) FROM txsaga.question GROUP BY member;
