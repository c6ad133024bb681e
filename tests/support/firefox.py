"""Firefox, driven by its own WebDriver BiDi, without a driver program.

Playwright needs a special build of Firefox, which no package registry has.
Source of the commands: https://w3c.github.io/webdriver-bidi/.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

from tests.support.nodes import until
from tests.support.tools import LIMIT_S, require_tool

_WAIT_S = 3 * LIMIT_S  # during a whole test run, its first start takes a minute

ENTER = "\ue007"
TAB = "\ue004"
_MESSAGE_BYTES = 1 << 24
# Without these preferences, Firefox requests experiments, settings and updates from servers of its
# maker.
_PREFERENCES = {
    "app.normandy.enabled": False,
    "app.update.disabledForTesting": True,
    "browser.safebrowsing.update.enabled": False,
    "datareporting.policy.dataSubmissionEnabled": False,
    "extensions.getAddons.cache.enabled": False,
    "network.captive-portal-service.enabled": False,
    "network.connectivity-service.enabled": False,
    "services.settings.server": "data:,nowhere",
    "toolkit.telemetry.server": "data:,nowhere",
}
# Firefox's errors about a WebSocket that is still opening when its page is left.
_LEFT = ("establish a connection to the server at ws:", "The connection to ws:")
# A violation of the page's policy is an event of the document, which is not in any log.
_COLLECT_VIOLATIONS = """() => addEventListener('securitypolicyviolation', (event) =>
  console.error(`violates ${event.effectiveDirective}: ${event.blockedURI}`))"""


class Firefox:
    """A connection to a running Firefox."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._sent = 0
        self.errors: list[str] = []
        self.call("session.new", capabilities={})
        self.call("session.subscribe", events=["log.entryAdded"])
        self.call("script.addPreloadScript", functionDeclaration=_COLLECT_VIOLATIONS)

    def call(self, method: str, **params: Any) -> Any:
        """Send a command; return its result."""
        self._sent += 1
        self._socket.send(json.dumps({"id": self._sent, "method": method, "params": params}))
        while True:
            message = json.loads(self._socket.recv(_WAIT_S))
            if message["type"] == "event":
                entry = message["params"]
                if entry["level"] == "error":
                    self.errors.append(entry["text"])
            elif message["id"] == self._sent:
                assert message["type"] == "success", message
                return message["result"]

    @contextmanager
    def page(self, address: str) -> Iterator[FirefoxPage]:
        """Open a page with a store of its own; fail if it has errors."""
        user = self.call("browser.createUserContext")["userContext"]
        made = self.call("browsingContext.create", type="tab", userContext=user)
        page = FirefoxPage(self, made["context"])
        page.go(address)
        yield page
        self.call("browser.removeUserContext", userContext=user)
        errors, self.errors = self.errors, []
        wrong = [text for text in errors if not any(part in text for part in _LEFT)]
        assert not wrong, wrong


class FirefoxPage:
    """A page of Firefox. Methods that look for an element wait for it."""

    def __init__(self, firefox: Firefox, context: str) -> None:
        self._firefox = firefox
        self._context = context

    def _call(self, method: str, **params: Any) -> Any:
        return self._firefox.call(method, context=self._context, **params)

    def go(self, address: str) -> None:
        self._call("browsingContext.navigate", url=address, wait="complete")

    def find(self, role: str, name: str) -> Any:
        """Return the only element with this role and name in the accessibility tree."""
        locator = {"type": "accessibility", "value": {"role": role, "name": name}}
        found = until(lambda: self._nodes(locator), f"{role} {name!r} is there")
        assert len(found) == 1, (role, name, found)
        return found[0]

    def _nodes(self, locator: dict[str, Any]) -> Any:
        return self._call("browsingContext.locateNodes", locator=locator)["nodes"]

    def click(self, role: str, name: str) -> None:
        origin = {"type": "element", "element": {"sharedId": self.find(role, name)["sharedId"]}}
        steps = [
            {"type": "pointerMove", "x": 0, "y": 0, "origin": origin},
            {"type": "pointerDown", "button": 0},
            {"type": "pointerUp", "button": 0},
        ]
        self._act({"type": "pointer", "id": "mouse", "actions": steps})

    def type(self, text: str) -> None:
        """Press keys; they go to the focused element."""
        steps = [{"type": kind, "value": key} for key in text for kind in ("keyDown", "keyUp")]
        self._act({"type": "key", "id": "keyboard", "actions": steps})

    def _act(self, source: dict[str, Any]) -> None:
        self._call("input.performActions", actions=[source])

    def choose_file(self, selector: str, path: Path) -> None:
        (element,) = self._nodes({"type": "css", "value": selector})
        files = [str(path)]
        self._call("input.setFiles", element={"sharedId": element["sharedId"]}, files=files)

    def wait_for_text(self, text: str) -> None:
        expression = f"document.body.innerText.includes({json.dumps(text)})"
        until(lambda: self.evaluate(expression), f"the page shows {text!r}")

    def evaluate(self, expression: str) -> Any:
        target = {"context": self._context}
        answer = self._firefox.call(
            "script.evaluate", expression=expression, target=target, awaitPromise=True
        )
        assert answer["type"] == "success", answer
        return answer["result"].get("value")


@contextmanager
def firefox(folder: Path) -> Iterator[Firefox]:
    """Start the system's Firefox, with a profile in a folder. Without Firefox, the test is skipped,
    or fails in CI."""
    program = require_tool("firefox-esr")
    lines = [f"user_pref({json.dumps(k)}, {json.dumps(v)});" for k, v in _PREFERENCES.items()]
    (folder / "user.js").write_text("\n".join(lines))
    command = [program, "--headless", "--no-remote", "--profile", str(folder)]
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(
            [*command, "--remote-debugging-port=0"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        told = folder / "WebDriverBiDiServer.json"
        until(lambda: told.exists() and told.read_text(), "Firefox takes connections", _WAIT_S)
        port = json.loads(told.read_text())["ws_port"]
        address = f"ws://127.0.0.1:{port}/session"
        with connect(address, proxy=None, max_size=_MESSAGE_BYTES, ping_interval=None) as socket:
            yield Firefox(socket)
    finally:
        process.terminate()
        process.wait(LIMIT_S)
