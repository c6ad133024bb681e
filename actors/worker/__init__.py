"""Workers: processes that run the actors of many projects.

In: frames of gateways with events; messages of the supervisor to run and to end projects.
Out: answers, after the effects of the events are in the journal.
Open first: `core.py`, then `runners.py` and `actor.py`.
"""
