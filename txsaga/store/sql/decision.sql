-- name: write
-- Every decision of the program is written by this statement. The one around it names what it decides:
-- decided (txid, decision, keyed, from_check). Rows are written in the order of their numbers: two that meet may wait,
-- but never deadlock.
INSERT INTO txsaga.op (txid, decision, keyed, from_check)
SELECT txid, decision, keyed, from_check FROM decided ORDER BY txid;

-- name: one
WITH decided AS (SELECT CAST(:txid AS bigint) AS txid, CAST(:decision AS int) AS decision,
                        CAST(:keyed AS bool) AS keyed, CAST(:from_check AS bool) AS from_check)
{statement write} ON CONFLICT (txid) DO NOTHING RETURNING txid;
