"""Monitoring of a cluster: heartbeats, the state of each host, health conditions.

In: heartbeats of other hosts, metrics of this host, monitoring of its replication engine.
Out: heartbeats, health conditions, the file `cluster_facts` for the gateways of this host.
Open first: `watch.py`.
"""
