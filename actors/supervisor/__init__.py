"""The supervisor of the node's processes: starts all of them and restarts those that die.

In: exits of children, health reports, requests to activate a project.
Out: addresses of running processes and projects; the health board.
Open first: `supervisor.py`, then `projects.py`, `workers.py` and `balance.py`.
"""
