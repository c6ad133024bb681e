"""Configurations of a project: each is checked here and stored as JSON in the form of the
interface.

In: values of requests, or of an imported project (`imported.py`).
Out: configurations in the registry, which the project's actor reads.
Open first: `environment.py`; `stored.py` has the functions that all kinds share.
Source: interface document, 5.6.
"""
