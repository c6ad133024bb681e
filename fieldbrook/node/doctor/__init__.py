"""Doctor: examines a machine and a data folder, before a node runs on them or while it runs.

In: the settings of the node.
Out: a finding for each check, with advice if something is wrong.
Open first: `examination.py`.
"""
