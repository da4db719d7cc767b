"""
The command line: it parses, calls one use case, prints.

It holds no rules of its own. Only `__main__` turns errors into exit codes; commands let them pass. Nothing
heavy is imported before a command runs.
"""
