-- name: ask
-- What operators left behind whose programs were killed goes with it.
WITH gone AS (DELETE FROM txsaga.client_command WHERE asked < clock_timestamp() - interval '1 minute')
INSERT INTO txsaga.client_command (nonce, client, message) VALUES (:nonce, :client, :message);

-- name: open
SELECT nonce, client, message FROM txsaga.client_command
 WHERE asked > clock_timestamp() - :patience * interval '1 second';

-- name: take
-- The first gateway that has a client asks it.
INSERT INTO txsaga.client_answer (nonce, client, about)
SELECT :nonce, c ->> 'client', c FROM jsonb_array_elements(CAST(:clients AS jsonb)) c
    ON CONFLICT DO NOTHING;

-- name: answer
UPDATE txsaga.client_answer SET done = :done, said = :said WHERE nonce = :nonce AND client = :client;

-- name: answers
SELECT about, done, said FROM txsaga.client_answer WHERE nonce = :nonce ORDER BY client;

-- name: drop
DELETE FROM txsaga.client_command WHERE nonce = :nonce;
