"""Look-ahead: runs heavy handlers before their turn in other threads, with unchanged results.

In: the events of a look-ahead round: those that a project has queued when the round begins.
Out: runs that the project validates, and adopts when they are valid.
Open first: `look_ahead.py`, then `run.py`.
"""
