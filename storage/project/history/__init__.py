"""The event history: a compact record of each recent event; part of a project's store.

Events are written in chunks of up to about a thousand. Separate tables have the payloads of the
newest events, and the failed events of removed chunks. The guarantees do not cover the last records
before a power cut.

In: the records of a batch; filters for a search.
Out: rows of the tables; pages of matching events.
Open first: `records.py`.
"""
