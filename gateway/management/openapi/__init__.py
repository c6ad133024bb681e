"""The interface as an OpenAPI 3.1 document and as a page.

In: the declared routes and their types.
Out: the document as JSON; a page of HTML without scripts.
Open first: `document.py`.
"""
