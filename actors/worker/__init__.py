"""Workers: processes that run the actors of many projects.

In: frames of gateways with events; orders of the supervisor to run and to end projects.
Out: answers, after the journal has what the events did.
Open first: `core.py`, then `runners.py` and `actor.py`.
"""
