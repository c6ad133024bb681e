"""JSON-RPC to the endpoints of one chain, with fail-over between them.

In: a method and its parameters.
Out: its result, the JSON-RPC error of the chain, or an error that says why each endpoint failed.
Open first: `client.py`, then `search.py`, `endpoint.py` and `request_queue.py`.
"""
