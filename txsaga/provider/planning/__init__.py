"""The plan of a flow: where each of its steps is settled, who votes, and what it can't ask for."""
