-- name: lock
SELECT attempts FROM txsaga.claim WHERE grp = :grp AND qid = :qid AND base = :base AND size = :size
   AND receipt = :receipt AND until > clock_timestamp() AND txid IS NULL AND open & :open = :open FOR UPDATE;

-- name: leave_run
UPDATE txsaga.claim SET open = open & ~:open WHERE grp = :grp AND qid = :qid AND base = :base AND size = :size
   AND receipt = :receipt;

-- name: end_run
DELETE FROM txsaga.claim WHERE grp = :grp AND qid = :qid AND base = :base AND size = :size AND receipt = :receipt
   AND open = 0;

-- name: put_back
-- Keep the first cause and the last ones: the history of endless redelivery must not grow for ever.
UPDATE txsaga.claim SET until = clock_timestamp() + :delay, receipt = NULL,
       history = coalesce(CASE WHEN jsonb_array_length(history) < 20 THEN history ELSE history - 1 END, '[]')
                 || jsonb_build_array(jsonb_build_object('at', clock_timestamp(), 'member', member,
                                                         'attempts', attempts, 'cause', CAST(:cause AS text)))
 WHERE grp = :grp AND qid = :qid AND base = :base AND size = :size AND receipt = :receipt;

-- name: give_back
UPDATE txsaga.claim SET until = clock_timestamp(), receipt = NULL, attempts = attempts - 1
 WHERE grp = :grp AND qid = :qid AND base = :base AND size = :size AND receipt = :receipt
   AND until > clock_timestamp() AND txid IS NULL;

-- name: extend
UPDATE txsaga.claim SET until = clock_timestamp() + :by
 WHERE grp = :grp AND qid = :qid AND base = :base AND size = :size AND receipt = :receipt
   AND until > clock_timestamp() AND txid IS NULL AND open & :open <> 0;

-- name: extend_alone
UPDATE txsaga.claim SET until = clock_timestamp() + :by, receipt = :fresh
 WHERE grp = :grp AND qid = :qid AND base = :base AND size = :size AND receipt = :receipt;

-- name: lock_some
-- Messages given back from a run get a claim each: a consumer that asks for few gets few.
SELECT open FROM txsaga.claim WHERE grp = :grp AND qid = :qid AND base = :base AND size = :size AND receipt = :receipt
   AND until > clock_timestamp() AND txid IS NULL AND open & :open <> 0 FOR UPDATE;

-- name: apart
INSERT INTO txsaga.claim (grp, qid, base, size, open, attempts, until, history)
SELECT r.grp, r.qid, r.base + i, 1, 1, r.attempts - 1, clock_timestamp(), r.history
  FROM (SELECT * FROM txsaga.claim WHERE grp = :grp AND qid = :qid AND base = :base AND size = :size
                      AND receipt = :receipt) r, generate_series(0, r.size - 1) i
 WHERE (r.open & :open) >> i & 1 = 1;

-- name: dead
WITH gone AS (
    DELETE FROM txsaga.claim WHERE grp = :grp AND qid = :qid AND base = :base AND size = :size AND receipt = :receipt
    RETURNING grp, qid, base, attempts - CAST(:uncounted AS int) AS attempts, member, history, message, born, body)
INSERT INTO txsaga.dead_letter (grp, topic, qid, off, attempts, cause, history, message, born, body)
SELECT grp, CAST(:topic AS text), qid, base, attempts, CAST(:cause AS text),
       coalesce(CASE WHEN jsonb_array_length(history) < 20 THEN history ELSE history - 1 END, '[]')
       || jsonb_build_array(jsonb_build_object('at', clock_timestamp(), 'member', member,
                                               'attempts', attempts, 'cause', CAST(:cause AS text))),
       coalesce(message, :message), coalesce(born, :born), coalesce(body, :body) FROM gone
ON CONFLICT (grp, qid, off) DO UPDATE SET at = clock_timestamp(), attempts = excluded.attempts,
   cause = excluded.cause, history = excluded.history, body = excluded.body;

-- name: backed_out
WITH gone AS (DELETE FROM txsaga.claim WHERE grp = :grp AND qid = :qid AND base = :base AND size = :size
   AND receipt = :receipt RETURNING 1),
 h AS (INSERT INTO txsaga.half (txid, pgroup, qid, chunk, n, body)
       SELECT nextval('txsaga.tx_seq'), 0, :to, 0, 1, :body FROM gone RETURNING txid),
 decided AS (SELECT txid, 1 AS decision, false AS keyed, false AS from_check FROM h)
{statement store/decision.write};

-- name: back_out
-- The same, for a login that does not own the namespace.
SELECT txsaga.back_out(:grp, :qid, :base, :size, :receipt, :to, :body);

-- name: forgotten
-- A group's claims, on some queues or on all; a replayed message has no other copy, so it is dead again.
-- One statement: with two, the second would delete a letter replayed in between without storing it as dead again.
WITH gone AS (
    DELETE FROM txsaga.claim WHERE grp = :grp AND (CAST(:qids AS int[]) IS NULL OR qid = ANY (:qids)) RETURNING *)
INSERT INTO txsaga.dead_letter (grp, topic, qid, off, attempts, cause, history, message, born, body)
SELECT grp, t.name, qid, base, attempts, CAST(:why AS text), coalesce(history, '[]'), message, born, body
  FROM gone JOIN txsaga.queue q USING (qid) JOIN txsaga.topic t ON t.id = q.topic WHERE message IS NOT NULL
ON CONFLICT DO NOTHING;

-- name: take_out
INSERT INTO txsaga.claim (grp, qid, base, size, open, attempts, until, receipt, member, history)
SELECT r.grp, r.qid, r.base + i, 1, 1, r.attempts, r.until, r.receipt, r.member, r.history
  FROM (SELECT * FROM txsaga.claim WHERE grp = :grp AND qid = :qid AND base = :base AND size = :size
                      AND receipt = :receipt) r, generate_series(0, r.size - 1) i
 WHERE CAST(:open AS bigint) >> i & 1 = 1;

-- name: bind
UPDATE txsaga.claim SET txid = :txid, retry = :retry, until = 'infinity'
 WHERE grp = :grp AND qid = :qid AND base = ANY (:offsets) AND size = :size AND receipt = :receipt;

-- name: committed
DELETE FROM txsaga.claim WHERE txid = :txid;

-- name: rolled_back
UPDATE txsaga.claim SET txid = NULL, receipt = NULL, until = clock_timestamp() + retry,
       history = coalesce(CASE WHEN jsonb_array_length(history) < 20 THEN history ELSE history - 1 END, '[]')
                 || jsonb_build_array(jsonb_build_object('at', clock_timestamp(), 'member', member,
                                                         'attempts', attempts, 'cause', CAST(:cause AS text)))
 WHERE txid = :txid;
