"""
Folders as participants: files that are all in their places, or none of them.

They vote, hold what they voted for, and do what is told. They must not decide anything, and never put a file over one
that somebody else placed there meanwhile. If a process dies between two lines here, a manifest says what to go on with;
without a manifest nothing was promised.
"""

from txsaga.adapters.files.folder import Folder, FolderParticipant

__all__ = ["Folder", "FolderParticipant"]
