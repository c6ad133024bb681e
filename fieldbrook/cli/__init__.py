"""The command line, `fieldbrook`.

In: arguments, environment variables, the saved login.
Out: tables or JSON on standard output, an exit code.
Open first: `main.py` (the list of commands), then `options.py` (shared options).
"""
