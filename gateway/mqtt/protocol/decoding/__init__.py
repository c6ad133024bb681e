"""Decodes bytes as packets, of both versions of MQTT, from clients and servers.

In: the first byte of a packet, and its body.
Out: the packet as a value, or the error that the standard demands.
Open first: `decoder.py`.
"""
