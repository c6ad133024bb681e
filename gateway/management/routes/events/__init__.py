"""Routes about events: history, dead letters, logs, limits, cron jobs.

In: typed values from `framework`.
Out: rows of a project's store; commands of the registry.
Open first: `event_history.py`.
"""
