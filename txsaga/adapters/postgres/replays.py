"""
The statements of a replay: copying what counted of a transaction, and tying it to its copy.

The tie is a home effect of either transaction, in the place before all late bodies (`seq` 0). The key of the table
lets only one transaction be tied to an old one: whoever comes second waits for the first and finds its number.
"""

# What a superseded attempt left is not copied (R4).
COPY = """
WITH h AS (
    INSERT INTO {s}.half (txid, pgroup, qid, part, attempt, chunk, n, keyed, body)
    SELECT :new, :group, h.qid, h.part, :owner, h.chunk, h.n, true, h.body
      FROM {s}.half h LEFT JOIN {s}.part p ON p.txid = h.txid AND p.part = h.part
     WHERE h.txid = :old AND (NOT h.keyed OR p.attempt = h.attempt)
    RETURNING part),
 p AS (INSERT INTO {s}.part (txid, part, attempt) SELECT DISTINCT :new, part, :owner FROM h)
SELECT count(*) FROM h"""

TIE = """
WITH o AS (
    INSERT INTO {s}.effect (txid, seq, kind, payload)
    VALUES (:old, 0, 'replayed', jsonb_build_object('as', CAST(:new AS int8))) ON CONFLICT DO NOTHING RETURNING txid),
 n AS (
    INSERT INTO {s}.effect (txid, seq, kind, payload)
    SELECT :new, 0, 'replay', jsonb_build_object('of', CAST(:old AS int8)) FROM o RETURNING txid)
SELECT txid FROM o UNION ALL SELECT txid FROM n"""

REPLAY_OF = "SELECT (payload ->> 'as')::int8 FROM {s}.effect WHERE txid = :txid AND seq = 0 AND kind = 'replayed'"
