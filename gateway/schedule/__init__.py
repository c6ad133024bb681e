"""Cron jobs: the clock as a source of events.

In: the cron jobs of the registry; the time.
Out: one event for each due time.
Open first: `ticker.py` (the actor), then `cron.py` (pure decisions).
"""
