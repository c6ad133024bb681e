"""Heavy handlers of a project run before their turn in other threads, with the results of one.

In: the events of a round.
Out: runs that the project validates, and adopts when they are valid.
Open first: `look_ahead.py`, then `run.py`.
"""
