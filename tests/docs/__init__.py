"""The documentation runs: what a page shows is what happens."""
