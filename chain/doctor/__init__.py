"""Doctor: examines one endpoint before a node uses it.

In: the address of an endpoint; optionally a private key, for a transaction on a test chain.
Out: a finding for each check, and the settings that fit the endpoint.
Open first: `examination.py`.
"""
