"""Delivery of messages and API calls of handlers, after the commit.

In: entries of the projects' outboxes.
Out: MQTT messages and API calls; the removal of delivered entries.
Open first: `outbox.py`.
"""
