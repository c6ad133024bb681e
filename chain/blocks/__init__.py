"""Blocks and logs: following the head, detecting reorganisations, decoding logs.

In: headers and logs in the answers of endpoints.
Out: checked headers and logs; the blocks that a reorganisation removed.
Open first: `follower.py`, then `log_fetcher.py`.
"""
