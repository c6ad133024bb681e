"""The store of the MQTT listener: sessions, their queues, retained messages.

In: operations of the listener, in the order in which they happened.
Out: the same sessions and messages after a crash; a callback once an operation is synced.
Open first: `operations.py`, then `store.py` and `writer.py`.
"""

from fieldbrook.storage.mqtt.operations import (
    DeleteRetained,
    DeleteSession,
    Dequeue,
    Enqueue,
    Operation,
    PutRetained,
    PutSession,
    Release,
    StoredMessage,
    StoredSession,
)
from fieldbrook.storage.mqtt.store import MqttStore
from fieldbrook.storage.mqtt.writer import StoreWriter

__all__ = [
    "DeleteRetained",
    "DeleteSession",
    "Dequeue",
    "Enqueue",
    "MqttStore",
    "Operation",
    "PutRetained",
    "PutSession",
    "Release",
    "StoreWriter",
    "StoredMessage",
    "StoredSession",
]
