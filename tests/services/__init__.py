"""Real parts that tests start: one file per part, each with its own folder, port and end."""
