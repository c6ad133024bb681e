"""Files that the HTTP gateway serves: the dashboard and the documentation.

In: requests for paths that the installation lists.
Out: the files from memory, compressed if the client accepts that.
Open first: `dashboard.py`.
"""
