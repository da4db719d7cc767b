"""The plan of a flow: where each step is settled, who votes, and which requests are refused."""
