"""
Work on resources under one decision: coordinated blocks, flows across processes, and sagas.

Each has a fenced owner, steps on resources whose work is held or undone, one decision, and recovery of what a dead
owner left. Their branches, steps and sagas are rows of the home database.
"""
