"""The answers of the routes of projects, one file per noun.

In: records of the registry.

Out: structs, which are encoded as JSON and described in the OpenAPI document.

Open first: `applets.py`.
"""
