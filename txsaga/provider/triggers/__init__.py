"""What runs in the triggerer: one poll per second of each store, for all sensors that wait there."""
