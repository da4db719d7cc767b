"""Several brokers as one: who takes what, one outcome for a transaction over them, one reader of all."""
