"""What a host tells the others of itself, what it knows of them, and which conditions follow.

In: beats of other hosts, the metrics of this one, the pages of its engine.
Out: beats, health conditions, the file `cluster_facts` for the gateways of this host.
Open first: `watch.py`.
"""
