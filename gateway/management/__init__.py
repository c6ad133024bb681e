"""The management interface over HTTP.

In: a parsed request.
Out: the answer of the declared route, or one of the errors in `fieldbrook.core.errors`.
Open first: `route_table.py` (all routes), then `management_handler.py` and `framework/route.py`.
"""
