"""What the routes of projects answer, one file per noun.

In: records of the registry.

Out: structs, which are encoded as JSON and described in the OpenAPI document.

Open first: `applets.py`.
"""
