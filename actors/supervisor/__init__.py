"""The root of the tree: starts every other process and restarts what dies.

In: exits of children, health reports, requests to activate a project.
Out: addresses of running parts; the health board.
Open first: `supervisor.py`, then `restarts.py`.
"""
