"""The node's metrics in the form that Prometheus reads.

In: the shared table of numbers; sizes of stores; states of chains.
Out: one page of text.
Open first: `prometheus.py`, then `collectors.py`.
"""
