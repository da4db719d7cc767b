"""Several brokers as one: a policy chooses who takes a message, and a transaction over them has one outcome."""
