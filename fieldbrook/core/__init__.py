"""Values that every other folder shares: model, errors, settings, clock.

In: nothing of ours: this folder imports only itself.
Out: frozen values, one tree of errors, checked settings.
Open first: `model.py`, then `errors.py` and `settings.py`.
"""
