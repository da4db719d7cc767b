-- name: call
INSERT INTO txsaga.ballot (txid, name, rule, needed, voters)
VALUES (:txid, :name, :rule, CAST(:needed AS int4), CAST(:voters AS varchar[])) ON CONFLICT DO NOTHING RETURNING name;

-- name: cast
INSERT INTO txsaga.vote (txid, ballot, voter, yes, evidence)
VALUES (:txid, :ballot, :voter, :yes, CAST(:evidence AS jsonb)) ON CONFLICT DO NOTHING RETURNING voter;

-- name: polled
SELECT b.txid, b.name, b.rule, b.needed, b.voters, v.voter, v.yes, v.evidence, v.at
  FROM txsaga.ballot b LEFT JOIN txsaga.vote v ON v.txid = b.txid AND v.ballot = b.name
 WHERE b.txid = :txid ORDER BY b.name, v.at;

-- name: open
-- Ballots of open transactions.
SELECT b.*, v.voter, v.yes, v.evidence, v.at
  FROM (SELECT b.txid, b.name, b.rule, b.needed, b.voters FROM txsaga.ballot b JOIN txsaga.tx t ON t.txid = b.txid
         WHERE t.state = 'active' ORDER BY b.txid, b.name LIMIT :limit) b
  LEFT JOIN txsaga.vote v ON v.txid = b.txid AND v.ballot = b.name
 ORDER BY b.txid, b.name, v.at;
