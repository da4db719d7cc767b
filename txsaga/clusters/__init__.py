"""Several brokers as one: a policy chooses which take a message, and a transaction over them has one outcome."""
