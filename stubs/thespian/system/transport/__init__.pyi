from typing import Any

# `identify` is a method of each; Any because the runtime puts a cheaper one in its place.

class TransmitIntent:
    identify: Any

class ReceiveEnvelope:
    identify: Any
