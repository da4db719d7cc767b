-- name: columns
txid, pgroup, {token} AS token, key, epoch, owner, state, evidence, run, coordinator, lease;

-- name: record
SELECT {statement columns} FROM txsaga.tx;

-- name: newest
{statement record} WHERE pgroup = :group AND key = :key AND (CAST(:before AS int) IS NULL OR epoch < :before)
 ORDER BY epoch DESC LIMIT 1;

-- name: latest
{statement newest} FOR UPDATE OF tx;

-- name: lock
{statement record} WHERE txid = :txid FOR UPDATE OF tx;

-- name: share
{statement record} WHERE txid = :txid FOR SHARE OF tx;

-- name: sees
SELECT NOT row_security_active('txsaga.tx') OR txsaga.everywhere() OR txsaga.mine(CAST(:group AS int4));

-- name: create
INSERT INTO txsaga.tx (txid, pgroup, key, epoch, state, run, coordinator, lease)
SELECT nextval('txsaga.tx_seq'), :group, CAST(:key AS varchar), :epoch, 'active', CAST(:run AS varchar),
       CAST(:coordinator AS uuid), CAST(:lease AS float8)
 WHERE NOT (SELECT rejecting FROM txsaga.store)
    ON CONFLICT (pgroup, key, epoch) DO NOTHING RETURNING {statement columns};

-- name: release
UPDATE txsaga.tx SET coordinator = NULL WHERE txid = :txid;

-- name: take_over
UPDATE txsaga.tx SET owner = owner + 1
 WHERE txid = :txid AND state = 'active' AND NOT (SELECT rejecting FROM txsaga.store);

-- name: drop_slots
DELETE FROM txsaga.effect WHERE txid = :txid AND kind = 'late';

-- name: drop_frames
-- They are of no attempt any more.
UPDATE txsaga.part SET attempt = 0 WHERE txid = :txid AND part >= :frames;

-- name: drop_intents
DELETE FROM txsaga.intent WHERE txid = :txid;

-- name: touch
UPDATE txsaga.tx SET touched = clock_timestamp() WHERE txid = :txid;

-- name: move
UPDATE txsaga.tx SET state = :state, touched = clock_timestamp(), evidence = coalesce(CAST(:evidence AS int4), evidence)
 WHERE txid = :txid AND state = ANY (:allowed);

-- name: add
INSERT INTO txsaga.half (txid, pgroup, qid, part, attempt, chunk, n, keyed, body)
VALUES (:txid, :pgroup, :qid, :part, :attempt, :chunk, :n, true, :body);

-- name: add_last
-- The numbers of its chunks begin where those of a block never are. A send that its client repeats has the same body.
INSERT INTO txsaga.half (txid, pgroup, qid, part, attempt, chunk, n, keyed, body)
SELECT :txid, :pgroup, :qid, :part, :attempt, coalesce(max(chunk), 1073741823) + 1, 1, true, :body FROM txsaga.half
 WHERE (txid, part, attempt) = (:txid, :part, :attempt) AND chunk > 1073741823
HAVING bool_and(body <> :body) IS NOT FALSE;

-- name: win
INSERT INTO txsaga.part (txid, part, attempt) VALUES (:txid, :part, :attempt)
    ON CONFLICT (txid, part) DO UPDATE SET attempt = excluded.attempt;

-- name: reserve
INSERT INTO txsaga.effect (txid, seq, kind, payload) VALUES (:txid, :slot, 'late', CAST(:payload AS jsonb));

-- name: slots
SELECT seq, payload FROM txsaga.effect WHERE txid = :txid AND kind = 'late' ORDER BY seq;

-- name: due
SELECT EXISTS (SELECT FROM txsaga.doubt d
  WHERE d.txid = :txid AND d.parked IS NULL AND d.check_at <= clock_timestamp()
    AND NOT EXISTS (SELECT FROM txsaga.tx t
      WHERE t.txid = :txid AND t.touched + t.lease * interval '1 second' > clock_timestamp()));

-- name: park
INSERT INTO txsaga.doubt (txid, pgroup, keyed, parked)
SELECT txid, pgroup, true, CAST(:why AS text) FROM txsaga.tx WHERE txid = :txid
 UNION ALL
(SELECT txid, pgroup, false, CAST(:why AS text) FROM txsaga.half WHERE txid = :txid AND NOT keyed LIMIT 1)
    ON CONFLICT (txid) DO UPDATE SET parked = excluded.parked;

-- name: resume
UPDATE txsaga.doubt SET parked = NULL, checks = 0, check_at = clock_timestamp(), resumed = clock_timestamp()
 WHERE txid = :txid AND parked IS NOT NULL;

-- name: audit
INSERT INTO txsaga.event (txid, what, who, why) VALUES (:txid, :what, :who, :why);

-- name: decided
SELECT decision FROM txsaga.op WHERE txid = :txid;

-- name: consumed
SELECT EXISTS (SELECT txid FROM txsaga.intent WHERE txid = :txid),
       EXISTS (SELECT txid FROM txsaga.claim WHERE txid = :txid);

-- name: rejecting
SELECT uuid, incarnation, rejecting FROM txsaga.store;

-- name: copy
-- Halves of superseded attempts are not copied (R4).
WITH h AS (
    INSERT INTO txsaga.half (txid, pgroup, qid, part, attempt, chunk, n, keyed, body)
    SELECT :new, :group, h.qid, h.part, :owner, h.chunk, h.n, true, h.body
      FROM txsaga.half h LEFT JOIN txsaga.part p ON p.txid = h.txid AND p.part = h.part
     WHERE h.txid = :old AND (NOT h.keyed OR p.attempt = h.attempt)
    RETURNING part),
 p AS (INSERT INTO txsaga.part (txid, part, attempt) SELECT DISTINCT :new, part, :owner FROM h)
SELECT count(*) FROM h;

-- name: tie
WITH o AS (
    INSERT INTO txsaga.effect (txid, seq, kind, payload)
    VALUES (:old, 0, 'replayed', jsonb_build_object('as', CAST(:new AS int8))) ON CONFLICT DO NOTHING RETURNING txid),
 n AS (
    INSERT INTO txsaga.effect (txid, seq, kind, payload)
    SELECT :new, 0, 'replay', jsonb_build_object('of', CAST(:old AS int8)) FROM o RETURNING txid)
SELECT txid FROM o UNION ALL SELECT txid FROM n;

-- name: replay_of
SELECT (payload ->> 'as')::int8 FROM txsaga.effect WHERE txid = :txid AND seq = 0 AND kind = 'replayed';

-- name: unlist
WITH gone AS (DELETE FROM txsaga.doubt d WHERE d.txid = :txid RETURNING d.txid, d.remarks)
INSERT INTO txsaga.event (txid, at, what, who, why)
SELECT gone.txid, CAST(r ->> 'at' AS timestamptz), 'CHECK ' || (r ->> 'answer'), r ->> 'who', r ->> 'why'
  FROM gone, jsonb_array_elements(gone.remarks) AS r;

-- name: call_unlist
SELECT txsaga.unlist(:txid);

-- name: unlisted
-- For logins that do not own the namespace: of their own transactions, those decided or still active.
WITH gone AS (DELETE FROM txsaga.doubt d WHERE d.txid = $1
   AND (txsaga.everywhere() OR EXISTS (SELECT FROM txsaga.tx t WHERE t.txid = $1 AND txsaga.mine(t.pgroup)
                      AND (t.state = 'active' OR EXISTS (SELECT FROM txsaga.op o WHERE o.txid = $1))))
  RETURNING d.txid, d.remarks)
INSERT INTO txsaga.event (txid, at, what, who, why)
SELECT gone.txid, CAST(r ->> 'at' AS timestamptz), 'CHECK ' || (r ->> 'answer'), r ->> 'who', r ->> 'why'
  FROM gone, jsonb_array_elements(gone.remarks) AS r;
