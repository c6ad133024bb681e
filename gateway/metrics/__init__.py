"""The node's metrics in Prometheus' exposition format.

In: the table of metrics that all processes share; sizes of stores; states of chains.
Out: one page of text.
Open first: `prometheus.py`, then `collectors.py`.
"""
