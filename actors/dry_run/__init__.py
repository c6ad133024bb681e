"""Dry runs: a child process runs a handler over one event, and stores and sends nothing.

In: a `Trial` of a management route.
Out: a `Report`: code, logs, writes, statements, effects.
Open first: `trial.py` (what goes in and out), then `runner.py` and `child.py`.
"""
