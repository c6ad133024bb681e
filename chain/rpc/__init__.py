"""JSON-RPC to the endpoints of one chain, with fail-over between them.

In: a method and its parameters.
Out: its result, one endpoint's refusal, or an error that says why each endpoint failed.
Open first: `client.py`, then `endpoint.py` and `request.py`.
"""
