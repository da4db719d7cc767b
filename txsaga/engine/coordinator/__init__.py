"""One outcome for many resources: branches, their two phases, and who finishes them when their owner is gone."""
