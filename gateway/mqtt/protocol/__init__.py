"""The bytes of MQTT 3.1.1 and 5.0: packets, topics and filters, without any I/O.

In: bytes of a peer; packets to send; names of topics and filters.
Out: packets as values; bytes to send; which subscriptions and retained messages match.
Open first: `packets.py`, then `decoding/decoder.py`.
"""
