"""Configurations of a project: each is checked here and stored as JSON in the interface's own form.

In: values of requests, or of an imported project (`imported.py`).
Out: configurations in the registry, which the project's actor reads.
Open first: `environment.py`; `stored.py` has what all kinds share.
Source: interface document, 5.6.
"""
