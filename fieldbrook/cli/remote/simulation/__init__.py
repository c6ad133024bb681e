"""The command `simulate`: a fleet of devices that sends events to a node.

In: the number of devices, their rate, a template of their payloads.
Out: events over HTTP or MQTT; a table of the results, or JSON.
Open first: `command.py`, then `fleet.py` (the devices) and `template.py` (their payloads).
"""
