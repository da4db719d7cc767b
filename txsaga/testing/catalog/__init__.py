"""
A conformance kit for any Iceberg REST catalog: what several tables in one commit must mean.

    python -m txsaga.testing.catalog http://localhost:8181

Each case is a function with a docstring that says what must hold. It gets a namespace of its own, and returns a line of
evidence or raises `Violated` or `NotSupported`. The kit speaks plain HTTP; cases that need data files write them by
PyIceberg, from the extra `lake`.
"""
