from typing import Any

uncatchable_signals: list[int]

class MultiProcReplicator:
    @staticmethod
    def _checkChildLiveness(childInfo: Any) -> bool: ...

class MultiProcAdmin:
    logdefs: Any
    # Read by 4.0.1 when the logging process died, but never set by it.
    logDefs: Any
