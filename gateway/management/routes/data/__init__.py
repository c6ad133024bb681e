"""Routes about what a project stores: the key-value pairs of its applets, and its SQL tables.

In: typed values from `framework`.
Out: pairs and rows; a command to the project for each change of a key.
Open first: `key_values.py`, then `tables.py`.
"""
