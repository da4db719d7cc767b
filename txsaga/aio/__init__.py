"""
The bridge to event loops: the blocks of threads, entered by `async with`.

Each block is implemented once. Within a loop its blocking calls run on a greenlet, which suspends only its task; the
façades here only open and close blocks that way.
"""
