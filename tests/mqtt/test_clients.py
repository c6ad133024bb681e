"""MQTT clients of other projects, unmodified, with the node's own server."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.mqtt.conftest import PROJECT, Site
from tests.support.browser import chromium
from tests.support.mqtt_client import new_id
from tests.support.nodes import until
from tests.support.tls import TlsNode, shown_at
from tests.support.tools import LIMIT_S, npm_installed, require_tool

JS = Path(__file__).parent / "js"
VERSIONS = pytest.mark.parametrize("version", ["mqttv311", "mqttv5"])
PAHO = pytest.mark.parametrize(
    "version", [MQTTProtocolVersion.MQTTv311, MQTTProtocolVersion.MQTTv5]
)
EXPIRY_S = 600


# ---------------------------------------------------------------- mosquitto_pub, mosquitto_sub


def _mosquitto(program: str, site: Site, version: str, *arguments: str) -> str:
    """Run a client of mosquitto and return its output."""
    where = ["-h", "127.0.0.1", "-p", str(site.node.mqtt_port), "-V", version]
    done = subprocess.run(
        [require_tool(program), *where, *arguments],
        timeout=LIMIT_S,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)
    return done.stdout


@VERSIONS
@pytest.mark.parametrize("qos", ["0", "1", "2"])
def test_events_of_mosquitto_pub_are_handled(site: Site, version: str, qos: str) -> None:
    payload = f"{version} {qos}".encode()
    event = site.event(payload, "ECHO").decode()
    _mosquitto("mosquitto_pub", site, version, "-t", PROJECT, "-q", qos, "-m", event)
    until(lambda: site.last() == payload, "the event is handled")


@VERSIONS
def test_mosquitto_sub_gets_retained_messages(site: Site, version: str) -> None:
    topic = f"lake/kept/{version}"
    for qos in "012":
        _mosquitto("mosquitto_pub", site, version, "-r", "-t", topic, "-q", qos, "-m", f"k{qos}")
        read = ("-t", topic, "-q", qos, "-C", "1", "-F", "%q %r %p")
        assert _mosquitto("mosquitto_sub", site, version, *read) == f"{qos} 1 k{qos}\n"
    _mosquitto("mosquitto_pub", site, version, "-r", "-n", "-t", topic, "-q", "1")
    _mosquitto("mosquitto_pub", site, version, "-r", "-t", f"{topic}/end", "-q", "1", "-m", "end")
    read = ("-t", f"{topic}/#", "-q", "1", "-C", "1", "-F", "%p")
    assert _mosquitto("mosquitto_sub", site, version, *read) == "end\n"


@VERSIONS
def test_messages_wait_for_a_mosquitto_sub_that_keeps_its_session(site: Site, version: str) -> None:
    kept = ["-i", new_id("sub"), "-c", "-q", "2", "-t", "lake/queue"]
    kept += ["-x", str(EXPIRY_S)] if version == "mqttv5" else []
    _mosquitto("mosquitto_sub", site, version, *kept, "-E")  # subscribes and ends
    for number, qos in enumerate("12121"):
        what = ("-t", "lake/queue", "-q", qos, "-m", f"{number}")
        _mosquitto("mosquitto_pub", site, version, *what)
    found = _mosquitto("mosquitto_sub", site, version, *kept, "-C", "5").split()
    # It prints a message of QoS 2 after PUBREL, and keeps the order within a QoS.
    assert [each for each in found if each in "024"] == ["0", "2", "4"]
    assert [each for each in found if each in "13"] == ["1", "3"]


@pytest.mark.thorough
def test_mosquitto_pub_connects_by_tls_also_with_a_renewed_certificate(tmp_path: Path) -> None:
    node = TlsNode(tmp_path)
    try:
        node.log_in()
        site = Site(node)
        ca = node.files.ca
        before = shown_at(node.mqtt_port, ca)
        for payload in (b"first", b"renewed"):
            what = ("-t", PROJECT, "-q", "1", "-m", site.event(payload, "ECHO").decode())
            _mosquitto("mosquitto_pub", site, "mqttv5", "--cafile", str(ca), *what)
            assert site.last() == payload
            if payload == b"first":
                node.files.renew()
                until(lambda: shown_at(node.mqtt_port, ca) != before, "the new one is shown")
    finally:
        node.stop()


# ---------------------------------------------------------------- paho-mqtt


class _Paho:
    """A client of paho-mqtt with its loop in a thread, and the received messages."""

    def __init__(self, site: Site, version: MQTTProtocolVersion, *, kept_as: str = "") -> None:
        is_5 = version == MQTTProtocolVersion.MQTTv5
        session: dict[str, Any] = {} if is_5 else {"clean_session": not kept_as}
        self.client = paho.Client(
            CallbackAPIVersion.VERSION2, kept_as or new_id("paho"), protocol=version, **session
        )
        self.received: list[tuple[str, bytes, int]] = []
        self.present: list[bool] = []
        self.client.on_message = self._on_message
        self.client.on_connect = lambda _, __, flags, ___, ____: self.present.append(
            flags.session_present
        )
        self.client.reconnect_delay_set(1, 2)
        more: dict[str, Any] = {}
        if is_5:
            properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call] # paho's
            properties.SessionExpiryInterval = EXPIRY_S if kept_as else 0
            more = {"clean_start": not kept_as, "properties": properties}
        self.client.connect("127.0.0.1", site.node.mqtt_port, 60, **more)
        self.client.loop_start()
        until(lambda: self.present, "paho is connected")

    def _on_message(self, _: object, __: object, message: paho.MQTTMessage) -> None:
        self.received.append((message.topic, bytes(message.payload), message.qos))

    def has(self, topic: str, payload: bytes, qos: int) -> bool:
        """Return whether a message has arrived."""
        return (topic, payload, qos) in self.received

    def has_reconnected(self, connections: int) -> bool:
        """Return whether the client has connected more often than before."""
        return len(self.present) > connections

    def subscribe(self, topic_filter: str, qos: int) -> None:
        granted: list[Any] = []
        self.client.on_subscribe = lambda _, __, ___, codes, ____: granted.extend(codes)
        self.client.subscribe(topic_filter, qos)
        until(lambda: granted, "the answer to SUBSCRIBE")
        assert granted[0].value == qos

    def publish(self, topic: str, payload: bytes, qos: int) -> None:
        self.client.publish(topic, payload, qos).wait_for_publish(LIMIT_S)

    def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


def _is_last(site: Site, payload: bytes) -> bool:
    return site.last() == payload


def _has_counted(site: Site, more_than: int) -> bool:
    return site.count() > more_than


@PAHO
def test_paho_sends_events_and_exchanges_messages(site: Site, version: MQTTProtocolVersion) -> None:
    client = _Paho(site, version)
    for qos in (0, 1, 2):
        topic = f"lake/paho/{version}/{qos}"
        client.subscribe(topic, qos)
        client.publish(topic, b"hello", qos)
        until(partial(client.has, topic, b"hello", qos), "it comes back")
        payload = f"paho {version} {qos}".encode()
        client.publish(PROJECT, site.event(payload, "ECHO"), qos)
        until(partial(_is_last, site, payload), "the event is handled")
    client.close()


@PAHO
def test_messages_wait_for_a_paho_client_that_keeps_its_session(
    site: Site, version: MQTTProtocolVersion
) -> None:
    name, topic = new_id("paho-kept"), f"lake/paho/away/{version}"
    client = _Paho(site, version, kept_as=name)
    assert client.present == [False]
    client.subscribe(topic, 2)
    client.close()
    writer = _Paho(site, version)
    for number in range(30):
        writer.publish(topic, b"%d" % number, 1 + number % 2)
    writer.close()
    client = _Paho(site, version, kept_as=name)
    assert client.present == [True]
    until(lambda: len(client.received) >= 30, "all have come")
    client.close()
    for first, qos in ((0, 1), (1, 2)):  # paho delivers a message of QoS 2 after PUBREL
        expected = [(topic, b"%d" % number, qos) for number in range(first, 30, 2)]
        assert [each for each in client.received if each[2] == qos] == expected


@PAHO
def test_events_of_paho_run_once_although_the_gateway_is_killed_meanwhile(
    site: Site, version: MQTTProtocolVersion
) -> None:
    # Of QoS 1: after two attempts to connect, paho sends a message of QoS 2 that waits for its
    # PUBCOMP as a new one.
    client = _Paho(site, version, kept_as=new_id("paho-crash"))
    before, sent = site.count(), 0
    infos = []
    # When it reconnects, paho sends all waiting messages at once. Over MQTT 5 these must not be
    # more than the receive maximum.
    burst = 300 if version == MQTTProtocolVersion.MQTTv311 else 60
    for _ in range(2):  # killed while messages are unacknowledged, two times
        for _ in range(burst):
            infos.append(client.client.publish(PROJECT, site.event(b"%d" % sent), 1))
            sent += 1
        if burst == 300:
            until(partial(_has_counted, site, before + sent - burst), "some are handled")
            assert not infos[-1].is_published()
        reconnected = partial(client.has_reconnected, len(client.present))
        site.kill("fb-mqtt:0")
        until(reconnected, "paho has reconnected")
    for info in infos:
        info.wait_for_publish(LIMIT_S)
        assert info.is_published()
    client.close()
    assert client.present[1:] == [True] * (len(client.present) - 1)
    assert site.count() == before + sent


# ---------------------------------------------------------------- MQTT.js


@pytest.fixture(scope="module")
def mqtt_js() -> Path:
    return npm_installed(JS) / "mqtt"


@pytest.mark.parametrize("version", ["4", "5"])
@pytest.mark.parametrize("scheme", ["mqtt", "ws"])
@pytest.mark.usefixtures("mqtt_js")
def test_mqtt_js_sends_events_and_keeps_its_session(site: Site, version: str, scheme: str) -> None:
    node = site.node
    url = {
        "mqtt": f"mqtt://127.0.0.1:{node.mqtt_port}",
        "ws": f"ws://127.0.0.1:{node.http_port}/mqtt",
    }[scheme]
    topic, payload = f"lake/js/{scheme}/{version}", f"js {scheme} {version}".encode()
    done = subprocess.run(
        [require_tool("node"), "exchange.js", url, version, topic, site.event(payload, "ECHO")],
        cwd=JS,
        timeout=LIMIT_S,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "granted": 2,
        "received": [[f"{topic}/{qos}", f"n{qos}", qos] for qos in (0, 1, 2)],
        "codes": [0, 0x99 if version == "5" else 0],
        "away": ["a1", "a2"],
    }
    assert site.last() == payload


@pytest.fixture(scope="module")
def page() -> Iterator[Any]:
    # Playwright keeps an event loop running, which other tests of the process must not meet.
    with chromium() as browser:
        # The library is injected into a page whose policy forbids scripts. From a page without an
        # address, such as about:blank, Chromium does not connect to the loopback.
        yield browser.new_page(bypass_csp=True)


IN_THE_BROWSER = """async ([url, version, topic, event]) => {
  const options = { protocolVersion: version };
  const client = await mqtt.connectAsync(url, options, false);  // without further attempts
  await client.subscribeAsync(topic, { qos: 2 });
  const came = new Promise((done) => client.on('message', (from, payload, packet) =>
    done([from, payload.length, packet.qos])));
  await client.publishAsync('meadow', event, { qos: 2 });
  await client.publishAsync(topic, 'x'.repeat(300_000), { qos: 2 });
  const found = await came;
  await client.endAsync();
  return found;
}"""


@pytest.mark.parametrize("version", [4, 5])
def test_mqtt_js_in_a_browser_sends_events(
    site: Site, page: Any, mqtt_js: Path, version: int
) -> None:
    topic, payload = f"lake/browser/{version}", b"browser %d" % version
    page.goto(f"http://127.0.0.1:{site.node.http_port}/version")
    page.add_script_tag(path=mqtt_js / "dist" / "mqtt.min.js")
    url = f"ws://127.0.0.1:{site.node.http_port}/mqtt"
    event = site.event(payload, "ECHO").decode()
    assert page.evaluate(IN_THE_BROWSER, [url, version, topic, event]) == [topic, 300_000, 2]
    assert site.last() == payload
