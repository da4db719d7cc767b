"""
Folders as participants: all files of a transaction are in their places, or none is.

A manifest lists what a branch voted for; without one nothing was promised.
"""
