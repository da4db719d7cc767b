-- name: audit
SELECT id, txid, at, what, who, why, login FROM txsaga.event
 WHERE id < coalesce(:before, 9223372036854775807) ORDER BY id DESC LIMIT :limit;

-- name: engines
-- Who leads the rounds of each role, or led the last one, and which processes answer or work.
SELECT kind, name, holder, until > clock_timestamp() AS alive, clock_timestamp() - until AS ago
  FROM txsaga.lease WHERE kind = 'round' OR kind = 'call' OR kind LIKE 'checker:%' ORDER BY kind, name;

-- name: mark
-- Differs from an earlier one if a transaction was begun, moved, decided or checked, a tick was made, a message became
-- a dead letter, a group was made or paused, or something was recorded.
SELECT concat_ws('/', (SELECT last_value FROM txsaga.tx_seq), (SELECT xid FROM txsaga.op ORDER BY xid DESC LIMIT 1),
                 (SELECT max(touched) FROM txsaga.tx WHERE state IN ('active', 'sealed', 'prepared')),
                 (SELECT concat(count(*), ' ', sum(checks), ' ', count(parked)) FROM txsaga.doubt),
                 (SELECT max(id) FROM txsaga.tick), (SELECT max(id) FROM txsaga.event),
                 (SELECT concat(max(id), ' ', count(*)) FROM txsaga.dead_letter),
                 (SELECT concat(count(*), ' ', count(*) FILTER (WHERE paused)) FROM txsaga.consumer_group));

-- name: states
SELECT coalesce(CASE WHEN b.parked IS NOT NULL THEN 'parked' ELSE t.state END, 'prepared'), count(*)
  FROM ({statement inspect/overview.undecided_ones}) b LEFT JOIN txsaga.tx t USING (txid) GROUP BY 1;
