"""
What can take part in a transaction: databases, folders, functions, HTTP services, another broker.

A participant votes, holds what it voted for, and carries out the decision. None of them decides, and none touches what
others prepared. If a process dies between two lines, a branch is either not prepared, and gone, or prepared and listed.
"""
