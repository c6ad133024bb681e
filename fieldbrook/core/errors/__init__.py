"""The tree of errors: every failure that the node expects, one module per area.

The code that raises an error knows the cause. So the class defines the answer, and the gateway only
renders it. Between processes a failure is sent as the value `(class name, details)`.

Source: interface document 1.3 and section 9 (if catalogues differ, that of the later generation).

In: names and values from the code that detects a failure.
Out: the key, number, status and text of the answer.
Open first: `base.py`.
"""

# ruff: noqa: F403 - every class of these modules is exported

from fieldbrook.core.errors.access import *
from fieldbrook.core.errors.base import *
from fieldbrook.core.errors.conflict import *
from fieldbrook.core.errors.limits import *
from fieldbrook.core.errors.node import *
from fieldbrook.core.errors.not_found import *
from fieldbrook.core.errors.request import *
from fieldbrook.core.errors.wire import *
