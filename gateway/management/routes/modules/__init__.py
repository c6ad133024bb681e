"""Routes that show what modules do: inspection before an upload, dry runs, traces of events.

In: typed values from `framework`.
Out: reports; inspection and dry runs keep nothing and send nothing.
Open first: `inspection.py`, then `dry_runs.py`.
"""
