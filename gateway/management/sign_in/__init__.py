"""Signing in: wallet signatures, and the throttle against password guessing.

In: the token, password or wallet message of a request.
Out: an account, or an authorization error.
Open first: `wallet.py`, then `throttle.py`.
"""
