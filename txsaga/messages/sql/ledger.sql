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
