"""The command `simulate`: a fleet of devices that sends events to a node.

In: how many devices, how often, a template of their payloads.
Out: events over HTTP or MQTT; a table of what became of them, or JSON.
Open first: `command.py`, then `fleet.py` (the devices) and `template.py` (their payloads).
"""
