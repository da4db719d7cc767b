"""
Work on resources under one decision: coordinated blocks, flows across processes, and sagas.

Each has an owner with a fence, steps on resources that are held or undone, one decision, and recovery for what a dead
owner left. Their branches, steps and sagas are rows of the home database.
"""
