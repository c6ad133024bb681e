"""Sessions of MQTT clients: subscriptions, queues, retained messages and rights.

In: subscriptions, messages and acknowledgements of clients.
Out: messages to their connections (`session.Wire`); rows of `storage/mqtt`.
Open first: `routing.py`, then `queues.py` and `session.py`.
"""
