"""Tests of txsaga. A package, so that no other installed `tests` can take its place."""
