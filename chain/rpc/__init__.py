"""JSON-RPC to the endpoints of one chain, with fail-over between them.

In: a method and its parameters.
Out: its result, or an error that says which endpoints refused and why.
Open first: `client.py`, then `transport.py`.
"""
