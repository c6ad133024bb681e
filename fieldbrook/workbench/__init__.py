"""Workbench for applet authors: create, build, run and test applets without a node.

In: a module or a folder with one; recorded events.
Out: results, logs and effects of each event; differences from recorded expectations.
Open first: `runs.py` for running applets, `scaffold.py` for applet folders.
"""
