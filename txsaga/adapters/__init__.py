"""What connects the engine to the world: stores, participants, brokers, the embedded server."""
