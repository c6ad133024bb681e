"""Routes that try modules out: inspection before an upload, and dry runs of applets.

In: typed values from `framework`.
Out: reports; nothing is kept and nothing is sent.
Open first: `inspection.py`, then `dry_runs.py`.
"""
