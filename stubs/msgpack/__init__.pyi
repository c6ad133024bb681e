"""The part of msgpack 1.x that the data plane uses."""

from collections.abc import Callable
from typing import Any

class UnpackException(Exception): ...
class BufferFull(UnpackException): ...
class OutOfData(UnpackException): ...
class FormatError(ValueError, UnpackException): ...
class StackError(ValueError, UnpackException): ...

UnpackValueError = ValueError

class ExtraData(UnpackValueError):
    unpacked: Any
    extra: bytes
    def __init__(self, unpacked: object, extra: bytes) -> None: ...

class Packer:
    def __init__(
        self,
        *,
        default: Callable[[Any], Any] | None = None,
        use_single_float: bool = False,
        autoreset: bool = True,
        use_bin_type: bool = True,
        strict_types: bool = False,
        datetime: bool = False,
        unicode_errors: str | None = None,
        buf_size: int | None = None,
    ) -> None: ...
    def pack(self, obj: object) -> bytes: ...
    def bytes(self) -> bytes: ...
    def reset(self) -> None: ...

class Unpacker:
    def __init__(
        self,
        file_like: object = None,
        *,
        read_size: int = 0,
        use_list: bool = True,
        raw: bool = False,
        strict_map_key: bool = True,
        object_hook: Callable[[dict[Any, Any]], Any] | None = None,
        unicode_errors: str | None = None,
        max_buffer_size: int = ...,
    ) -> None: ...
    def feed(self, next_bytes: bytes | bytearray | memoryview) -> None: ...
    def unpack(self) -> Any: ...
    def skip(self) -> None: ...
    def tell(self) -> int: ...
    def __iter__(self) -> Unpacker: ...
    def __next__(self) -> Any: ...

def packb(o: object, **kwargs: Any) -> bytes: ...
def unpackb(
    packed: bytes | bytearray | memoryview,
    *,
    object_hook: Callable[[dict[Any, Any]], Any] | None = None,
    use_list: bool = True,
    raw: bool = False,
    strict_map_key: bool = True,
    unicode_errors: str | None = None,
) -> Any: ...
