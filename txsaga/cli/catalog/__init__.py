"""The commands of the open catalog: the server, cuts and workspaces."""
