"""Messages: half messages, the transaction block that sends and decides them, schedules and replays."""
