"""
Folders as participants: the files of a transaction are all in their places, or none of them is.

A manifest lists what a branch voted for; without one nothing was promised.
"""
