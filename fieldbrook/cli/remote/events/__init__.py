"""Commands on events: sending, logs, history, dead letters, cron jobs, traffic limits.

In: arguments; answers of the management routes.
Out: events and requests; tables or JSON.
Open first: `send.py`, then `history.py`.
"""
