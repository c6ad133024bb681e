from google.protobuf.descriptor_pool import Descriptor
from google.protobuf.message import Message

def GetMessageClass(descriptor: Descriptor) -> type[Message]: ...
