"""The management interface over HTTP.

In: a parsed request.
Out: the answer of the declared route, or one of the errors in `fieldbrook.core.errors`.
Open first: `application.py` (all routes), then `framework/route.py`.
"""
