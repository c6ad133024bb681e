"""Copies of a data folder: backup, restore, export of a project, verification.

In: a data folder, also of a running node, or an archive.
Out: an archive, a data folder, or a list of defects.
Open first: `backup.py`, then `archive.py`.
"""
