"""Keys, tokens, signatures, certificates and TLS.

In: secrets of the data folder; tokens, keys and signatures of callers.
Out: verified identities; signed tokens; TLS contexts.
Open first: `tokens.py`, then `access_keys.py`.
"""
