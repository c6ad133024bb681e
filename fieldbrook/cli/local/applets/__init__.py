"""Commands for authors of applets, without a node: `applet new`, `build`, `run`, `test`.

In: applet folders, modules, recorded events.
Out: new folders, built modules, the results of runs.
Open first: `folders.py` (new, build), then `workbench.py` (shared by `run`, `test` and `dev`).
"""
