"""Several hosts that run one node together, on a replicated journal.

In: hosts that join, beats of the others, connections that are meant for another host.
Out: who is there, which host owns a project, bytes to and from other hosts.
Open first: `process.py`, then `joining.py` and `tunnels.py`.
"""
