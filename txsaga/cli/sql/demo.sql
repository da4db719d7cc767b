-- name: create_account
-- Each run of the demo has one account in each bank.
CREATE TABLE IF NOT EXISTS account (run text PRIMARY KEY, cents int NOT NULL CHECK (cents >= 0));

-- name: open_account
INSERT INTO account VALUES (%(run)s, %(cents)s);

-- name: change_account
UPDATE account SET cents = cents + %(cents)s WHERE run = %(run)s;

-- name: account
SELECT cents FROM account WHERE run = %(run)s;
