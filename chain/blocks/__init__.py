"""Blocks and logs: following the head, noticing reorganisations, decoding logs.

In: headers and logs as endpoints answer them.
Out: checked headers and logs; the blocks that a reorganisation removed.
Open first: `follower.py`, then `log_fetcher.py`.
"""
