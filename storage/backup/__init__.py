"""Copies of a data folder: backup, restore, export of a project, verification.

In: a data folder (the node may be running), or an archive.
Out: an archive, a data folder, or a list of defects.
Open first: `backup.py`, then `archive.py`.
"""
