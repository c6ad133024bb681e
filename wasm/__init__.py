"""Applets: checking, compiling, linking and running WebAssembly modules.

In: a module's bytes; an event.
Out: a handler's result and its effects, or the trap that ended it.
Open first: `run.py` (one handler run), then `engine/applet.py`.
"""
