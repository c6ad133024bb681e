"""Routes about the node itself: health, chains, configuration.

In: typed values from `framework`.
Out: the state of the node as JSON.
Open first: `health.py`.
"""
