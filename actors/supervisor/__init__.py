"""The root of the tree: starts all other processes and restarts those that die.

In: exits of children, health reports, requests to activate a project.
Out: addresses of running parts; the health board.
Open first: `supervisor.py`, then `projects.py`, `workers.py` and `balance.py`.
"""
