"""Values that every other folder shares: model, errors, settings, clock.

In: nothing; this folder imports no other folder of the project.
Out: frozen values, one tree of errors, checked settings.
Open first: `model.py`, then `errors/` and `settings/`.
"""
