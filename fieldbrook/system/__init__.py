"""Functions of the operating system: process names, limits, confined children, fsync, loops.

In: commands to run; files that must survive a power cut.
Out: processes with limits; durable files.
Open first: `process.py`, `process_tree.py`, then `fsync.py`.
"""
