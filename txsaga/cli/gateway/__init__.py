"""Commands of the gateway, and for those who are connected to it."""
