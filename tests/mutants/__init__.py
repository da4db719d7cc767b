"""Mutants: for each rule of the protocol a fault in the engine, and the tests that must fail with it."""
