from typing import Any

class MultiProcAdmin:
    logdefs: Any
    # Read by 4.0.1 when the logging process died, but never set by it.
    logDefs: Any
