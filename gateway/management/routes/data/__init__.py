"""Routes about what a project stores: the key-value pairs of its applets.

In: typed values from `framework`.
Out: pairs; a command to the project's process for each change.
Open first: `key_values.py`.
"""
