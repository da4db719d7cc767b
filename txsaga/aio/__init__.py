"""
The bridge to event loops: the blocks of threads, entered by `async with`.

There is one implementation of each block. Within a loop its blocking calls run on a greenlet, which waits as a task
does; the façades here only open and close blocks that way.
"""
