from typing import Any, Protocol

from thespian.system.transport.streamBuffer import ackPacket as ackPacket
from thespian.system.transport.streamBuffer import toSendBuffer as toSendBuffer

class _Serializer(Protocol):
    def dumps(self, value: Any, /) -> bytes: ...
    def loads(self, frame: bytes, /) -> Any: ...

serializer: _Serializer
ackMsg: bytes
ackDataErrMsg: bytes

class TCPEndpoint:
    args: tuple[Any, ...]
    def __init__(self, *args: Any) -> None: ...

class TCPTransport:
    def __init__(self, initType: Any, *args: Any) -> None: ...
