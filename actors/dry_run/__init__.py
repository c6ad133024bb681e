"""Dry runs: a handler runs over one event in a child process; nothing is kept and nothing is sent.

In: a `Trial` of a management route.
Out: a `Report`: code, logs, writes, statements, effects.
Open first: `trial.py` (what goes in and out), then `runner.py` and `child.py`.
"""
