"""Routes about the node itself: health, chains, configuration.

In: typed values from `framework`.
Out: what the node knows of itself.
Open first: `health.py`.
"""
