"""Imports of language runtimes, beside the functions of the host interface.

In: calls of AssemblyScript's runtime and of WASI.
Out: their results, within the guest's budgets.
Open first: `assemblyscript.py`, then `wasi.py`.
"""
