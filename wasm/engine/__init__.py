"""Compiling and instantiating modules, and running them at full speed.

In: a checked module; events.
Out: each handler's result, within its limits of time and memory.
Open first: `applet.py`, then `instance.py` and `batch.py`.
"""
