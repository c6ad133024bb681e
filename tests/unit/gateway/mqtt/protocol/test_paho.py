"""A foreign codec: the node decodes packets of paho, and paho those of the node.

The client uses an object with the interface of a socket, which stores the bytes.
"""

from __future__ import annotations

from typing import Any

import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties as PahoProperties
from paho.mqtt.reasoncodes import ReasonCode as PahoReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from fieldbrook.gateway.mqtt.protocol.decoding.decoder import decode_client_packet
from fieldbrook.gateway.mqtt.protocol.encoding import encode
from fieldbrook.gateway.mqtt.protocol.framing import next_frame
from fieldbrook.gateway.mqtt.protocol.packets import (
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PingReq,
    PingResp,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    Subscription,
    UnsubAck,
    Unsubscribe,
    Will,
)
from fieldbrook.gateway.mqtt.protocol.properties import Properties
from fieldbrook.gateway.mqtt.protocol.reason_codes import ReasonCode
from tests.unit.gateway.mqtt.protocol.packets_made import VERSIONS


class Wire:
    """An object with the interface of a socket: it stores the client's data, and gives it data to
    receive."""

    def __init__(self) -> None:
        self.sent = bytearray()
        self.waiting = bytearray()

    def send(self, data: bytes) -> int:
        self.sent += data
        return len(data)

    def recv(self, size: int) -> bytes:
        if not self.waiting:
            raise BlockingIOError
        data = bytes(self.waiting[:size])
        del self.waiting[:size]
        return data

    def setblocking(self, _flag: bool) -> None: ...

    def fileno(self) -> int:
        return -1

    def close(self) -> None: ...

    def pending(self) -> int:
        return len(self.waiting)


class Client(mqtt.Client):
    """A client of paho whose socket is a `Wire`."""

    def __init__(self, version: int, **options: Any) -> None:
        protocol = MQTTProtocolVersion(version)
        super().__init__(CallbackAPIVersion.VERSION2, protocol=protocol, **options)
        self.version = version
        self.wire = Wire()
        self.connected = False

    def _create_socket(self) -> Any:
        return self.wire

    def sent(self) -> list[Packet]:
        """Return the client's data since the last call."""
        while self.want_write():
            assert self.loop_write() == mqtt.MQTT_ERR_SUCCESS
        data, at, packets = bytes(self.wire.sent), 0, list[Packet]()
        self.wire.sent.clear()
        while at < len(data):
            frame = next_frame(data, at, shortest=True)
            assert frame is not None
            first, start, at = frame
            packet = decode_client_packet(
                self.version if self.connected else 0, first, data[start:at]
            )
            self.connected = True
            packets.append(packet)
        return packets

    def receive(self, *packets: Packet) -> None:
        """Let the client receive packets."""
        for packet in packets:
            self.wire.waiting += encode(self.version, packet)
        while self.wire.waiting:
            assert self.loop_read() == mqtt.MQTT_ERR_SUCCESS

    def open(self, acknowledgement: ConnAck | None = None) -> Packet:
        """Connect; return the CONNECT."""
        assert self.connect("host", 1883, 60) == mqtt.MQTT_ERR_SUCCESS
        (packet,) = self.sent()
        self.receive(acknowledgement or ConnAck())
        return packet


def paho_properties(kind: int, **values: Any) -> PahoProperties:
    """Return properties in the form of paho, with its names."""
    made = PahoProperties(kind)  # type: ignore[no-untyped-call]
    for name, given in values.items():
        setattr(made, name, given)
    return made


@pytest.mark.parametrize("version", VERSIONS)
def test_the_connect_of_paho_is_read(version: int) -> None:
    assert Client(version, client_id="device-1").open() == Connect(version, "device-1", True, 60)
    options: dict[str, Any] = {"clean_session": False} if version == 4 else {}
    client = Client(version, client_id="device-1", **options)
    client.username_pw_set("publisher", "tökén")
    client.will_set("wills/a", b"gone", 2, True)
    packet = client.open()
    assert packet == Connect(
        version,
        "device-1",
        version == 5,
        60,
        "publisher",
        "tökén".encode(),
        Will("wills/a", b"gone", 2, True),
    )


def test_the_properties_of_a_connect_and_its_will_are_read() -> None:
    client = Client(5, client_id="")
    client.will_set(
        "w",
        "x",
        1,
        properties=paho_properties(
            PacketTypes.WILLMESSAGE,
            WillDelayInterval=7,
            PayloadFormatIndicator=1,
            MessageExpiryInterval=60,
            ContentType="text/plain",
            ResponseTopic="answers",
            CorrelationData=b"\1",
            UserProperty=("k", "v"),
        ),
    )
    client.connect(
        "host",
        properties=paho_properties(
            PacketTypes.CONNECT,
            SessionExpiryInterval=0xFFFF_FFFF,
            ReceiveMaximum=10,
            MaximumPacketSize=70_000,
            TopicAliasMaximum=5,
            RequestResponseInformation=1,
            RequestProblemInformation=0,
            AuthenticationMethod="m",
            AuthenticationData=b"d",
            UserProperty=[("a", "1"), ("a", "2")],
        ),
    )
    (packet,) = client.sent()
    assert isinstance(packet, Connect)
    assert packet.will is not None
    assert packet.will.properties == Properties(
        1, 60, "text/plain", "answers", b"\1", will_delay_interval=7, user_properties=(("k", "v"),)
    )
    assert packet.properties == Properties(
        session_expiry_interval=0xFFFF_FFFF,
        receive_maximum=10,
        maximum_packet_size=70_000,
        topic_alias_maximum=5,
        request_response_information=True,
        request_problem_information=False,
        authentication_method="m",
        authentication_data=b"d",
        user_properties=(("a", "1"), ("a", "2")),
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_the_messages_of_paho_are_read_and_their_acknowledgements_understood(version: int) -> None:
    client = Client(version)
    client.open()
    delivered: list[int] = []
    client.on_publish = lambda _client, _data, mid, *_: delivered.append(mid)
    infos = [
        client.publish("a/ü", bytes(size), qos) for size in (0, 200, 20_000) for qos in range(3)
    ]
    for qos, (packet, info) in enumerate(zip(client.sent(), infos, strict=True)):
        assert isinstance(packet, Publish)
        qos %= 3  # noqa: PLW2901 - three sizes, each with every quality
        assert (packet.topic, packet.qos, packet.dup) == ("a/ü", qos, False)
        assert packet.packet_id == (info.mid if qos else 0)
        if qos == 1:
            client.receive(PubAck(info.mid))
        elif qos == 2:
            client.receive(PubRec(info.mid))
            assert client.sent() == [PubRel(info.mid)]
            client.receive(PubComp(info.mid))
    assert sorted(delivered) == sorted(info.mid for info in infos)


def test_the_properties_of_a_message_are_read() -> None:
    client = Client(5)
    client.open(ConnAck(properties=Properties(topic_alias_maximum=10)))
    client.publish(
        "t",
        b"x",
        1,
        True,
        paho_properties(
            PacketTypes.PUBLISH,
            TopicAlias=3,
            PayloadFormatIndicator=1,
            MessageExpiryInterval=60,
            ContentType="text/plain",
            ResponseTopic="answers",
            CorrelationData=b"\1",
            UserProperty=("k", "v"),
        ),
    )
    (packet,) = client.sent()
    assert isinstance(packet, Publish)
    assert packet.retain
    assert packet.properties == Properties(
        1, 60, "text/plain", "answers", b"\1", topic_alias=3, user_properties=(("k", "v"),)
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_the_subscriptions_of_paho_are_read_and_their_answers_understood(version: int) -> None:
    client = Client(version)
    client.open()
    granted: list[list[int]] = []
    ended: list[int] = []
    client.on_subscribe = lambda _client, _data, _mid, codes, _properties: granted.append(
        [code.value for code in codes]
    )
    client.on_unsubscribe = lambda _client, _data, mid, *_: ended.append(mid)
    if version == 5:
        client.subscribe(
            [
                ("a/+", SubscribeOptions(1, True, True, 2)),
                ("$share/g/b/#", SubscribeOptions(2, retainHandling=1)),
            ],
            properties=paho_properties(
                PacketTypes.SUBSCRIBE, SubscriptionIdentifier=200, UserProperty=("k", "v")
            ),
        )
    else:
        client.subscribe([("a/+", 1), ("$share/g/b/#", 2)])
    (packet,) = client.sent()
    assert isinstance(packet, Subscribe)
    if version == 5:
        assert packet.properties == Properties(
            subscription_identifiers=(200,), user_properties=(("k", "v"),)
        )
        assert packet.subscriptions == (
            Subscription("a/+", 1, True, True, 2),
            Subscription("$share/g/b/#", 2, False, False, 1),
        )
    else:
        assert packet.subscriptions == (Subscription("a/+", 1), Subscription("$share/g/b/#", 2))
    client.receive(SubAck(packet.packet_id, (1, 0x80)))
    assert granted == [[1, 0x80]]
    client.unsubscribe(["a/+", "$share/g/b/#"])
    (packet,) = client.sent()
    assert isinstance(packet, Unsubscribe)
    assert packet.filters == ("a/+", "$share/g/b/#")
    client.receive(UnsubAck(packet.packet_id, (0, 0x11) if version == 5 else ()))
    assert ended == [packet.packet_id]


@pytest.mark.parametrize("version", VERSIONS)
def test_paho_understands_messages_and_acknowledges_them(version: int) -> None:
    client = Client(version)
    client.open()
    seen: list[mqtt.MQTTMessage] = []
    client.on_message = lambda _client, _data, message: seen.append(message)
    properties = Properties(
        1,
        60,
        "text/plain",
        "answers",
        b"\1",
        user_properties=(("k", "v"), ("k", "w")),
        subscription_identifiers=(1, 300),
    )
    client.receive(
        Publish("a/ü", b"0", retain=True, properties=properties),
        Publish("a/ü", bytes(200), 1, packet_id=5),
        Publish("a/ü", bytes(20_000), 2, dup=True, packet_id=6),
    )
    assert client.sent() == [PubAck(5), PubRec(6)]
    client.receive(PubRel(6))
    assert client.sent() == [PubComp(6)]
    assert [(m.topic, m.qos, m.retain, m.dup) for m in seen] == [
        ("a/ü", 0, True, False),
        ("a/ü", 1, False, False),
        ("a/ü", 2, False, True),
    ]
    assert [len(message.payload) for message in seen] == [1, 200, 20_000]
    if version == 5:
        read: Any = seen[0].properties
        assert read.PayloadFormatIndicator == 1
        assert read.MessageExpiryInterval == 60
        assert read.ContentType == "text/plain"
        assert read.ResponseTopic == "answers"
        assert read.CorrelationData == b"\1"
        assert read.UserProperty == [("k", "v"), ("k", "w")]
        assert read.SubscriptionIdentifier == [1, 300]


def test_paho_understands_every_property_of_a_connack() -> None:
    client = Client(5)
    seen: list[Any] = []
    client.on_connect = lambda *given: seen.append(given)
    client.open(
        ConnAck(
            True,
            properties=Properties(
                session_expiry_interval=60,
                receive_maximum=64,
                maximum_qos=1,
                retain_available=False,
                maximum_packet_size=1 << 20,
                assigned_client_identifier="fb-1",
                topic_alias_maximum=16,
                reason_string="hello",
                user_properties=(("k", "v"),),
                wildcard_subscription_available=True,
                subscription_identifier_available=True,
                shared_subscription_available=False,
                server_keep_alive=300,
                response_information="answers",
                server_reference="other:1883",
                authentication_method="m",
                authentication_data=b"d",
            ),
        )
    )
    ((_, _, flags, code, read),) = seen
    assert flags.session_present
    assert code.value == 0
    assert read.json() == {
        "SessionExpiryInterval": 60,
        "ReceiveMaximum": 64,
        "MaximumQoS": 1,
        "RetainAvailable": 0,
        "MaximumPacketSize": 1 << 20,
        "AssignedClientIdentifier": "fb-1",
        "TopicAliasMaximum": 16,
        "ReasonString": "hello",
        "UserProperty": [("k", "v")],
        "WildcardSubscriptionAvailable": 1,
        "SubscriptionIdentifierAvailable": 1,
        "SharedSubscriptionAvailable": 0,
        "ServerKeepAlive": 300,
        "ResponseInformation": "answers",
        "ServerReference": "other:1883",
        "AuthenticationMethod": "m",
        "AuthenticationData": bytearray(b"d"),
    }


@pytest.mark.parametrize(
    ("code", "understood"),
    [
        (ReasonCode.UNSUPPORTED_PROTOCOL_VERSION, "Unsupported protocol version"),
        (ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, "Client identifier not valid"),
        (ReasonCode.SERVER_UNAVAILABLE, "Server unavailable"),
        (ReasonCode.BAD_USER_NAME_OR_PASSWORD, "Bad user name or password"),
        (ReasonCode.NOT_AUTHORIZED, "Not authorized"),
    ],
)
@pytest.mark.parametrize("version", VERSIONS)
def test_paho_understands_why_it_is_refused(
    version: int, code: ReasonCode, understood: str
) -> None:
    if version == 4 and code is ReasonCode.UNSUPPORTED_PROTOCOL_VERSION:
        understood = ""  # paho tries again with 3.1 before it reports the refusal
    client = Client(version, client_id="device-1")
    seen: list[str] = []
    client.on_connect = lambda _client, _data, _flags, code, _properties: seen.append(str(code))
    client.connect("host")
    client.wire.waiting += encode(version, ConnAck(code=code))
    client.loop_read()
    assert seen == ([understood] if understood else [])
    if not understood:
        assert client.wire.sent.count(b"MQIsdp") == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_pings_are_the_same_on_both_sides(version: int) -> None:
    client = Client(version)
    client.open()
    client._send_pingreq()
    assert client.sent() == [PingReq()]
    client.receive(PingResp())


def test_a_disconnect_has_its_reason_on_both_sides() -> None:
    client = Client(5)
    client.open()
    seen: list[Any] = []
    client.on_disconnect = lambda *given: seen.append(given)
    client.disconnect(
        PahoReasonCode(PacketTypes.DISCONNECT, "Disconnect with will message"),
        paho_properties(PacketTypes.DISCONNECT, SessionExpiryInterval=5),
    )
    assert client.sent() == [
        Disconnect(ReasonCode.DISCONNECT_WITH_WILL_MESSAGE, Properties(session_expiry_interval=5))
    ]
    client = Client(5)
    client.open()
    client.on_disconnect = lambda *given: seen.append(given)
    seen.clear()
    client.wire.waiting += encode(
        5, Disconnect(ReasonCode.SESSION_TAKEN_OVER, Properties(reason_string="elsewhere"))
    )
    client.loop_read()
    ((_, _, _, code, read),) = seen
    assert code.value == 0x8E
    assert read.ReasonString == "elsewhere"
    client = Client(4)
    client.open()
    client.disconnect()
    assert client.sent() == [Disconnect()]
