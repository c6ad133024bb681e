"""Live data for pages: figures, events, logs, health and dead letters.

Each topic of a project is read once, by a channel, independent of the number of pages that follow
it. A page has one connection, a WebSocket or server-sent events, and a bounded number of waiting
messages.

In: requests to follow a topic, with filters; the stores of projects; the series.
Out: messages with rows, and the exact number of rows that were left out.
Open first: `page.py`, then `channels.py`.
"""
