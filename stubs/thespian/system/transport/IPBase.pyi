from typing import Any

class IPActorAddress:
    @property
    def sockname(self) -> tuple[str, int]: ...
    # A property; Any because the runtime puts another in its place.
    bindArgs: Any
