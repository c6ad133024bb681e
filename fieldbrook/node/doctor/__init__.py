"""Doctor: examines a machine and a data folder before a node runs there, or while it does.

In: the settings of the node.
Out: a finding for each check, with what to do where something is wrong.
Open first: `examination.py`.
"""
