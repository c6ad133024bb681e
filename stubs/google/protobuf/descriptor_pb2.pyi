class FieldDescriptorProto:
    TYPE_INT64: int
    TYPE_STRING: int
    TYPE_MESSAGE: int
    TYPE_BYTES: int
    LABEL_OPTIONAL: int

class _Fields:
    def add(
        self, *, name: str, number: int, type: int, label: int, type_name: str = ...
    ) -> FieldDescriptorProto: ...

class DescriptorProto:
    @property
    def field(self) -> _Fields: ...

class _Messages:
    def add(self, *, name: str) -> DescriptorProto: ...

class FileDescriptorProto:
    def __init__(self, *, name: str, package: str, syntax: str) -> None: ...
    @property
    def message_type(self) -> _Messages: ...
    def SerializeToString(self) -> bytes: ...
