"""What runs in the triggerer: one look a second at each store, for every sensor that waits there."""
