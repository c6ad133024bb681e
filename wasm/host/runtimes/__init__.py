"""Imports of language runtimes, in addition to the functions of the host interface.

In: calls from AssemblyScript's runtime and to WASI.
Out: their results, within the guest's budgets.
Open first: `assemblyscript.py`, then `wasi.py`.
"""
