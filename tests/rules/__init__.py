"""The rules of the protocol, one file each: the hole's interleaving, which is red without the rule."""
