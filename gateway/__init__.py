"""How events and administrators reach the node.

In: HTTP, MQTT, the clock.
Out: frames to projects and commands to the registry; answers to clients.
Open first: `base.py` (the base class of all gateway actors), then the folder of the protocol.
"""
