"""Commands on the node's MQTT server: its clients, sessions and messages; `pub` and `sub`.

In: options and arguments of a command.
Out: tables or JSON; messages that a client of its own has sent or received.
Open first: `group.py`, then `clients.py` and `try_out.py`.
"""
