"""A node whose project sends transactions to a chain, for tests."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fieldbrook.storage.chain.store import ChainStoreReader, chain_path
from fieldbrook.storage.chain.transactions import FINISHED, Transaction, TransactionReader
from tests.chain.evm import Evm
from tests.support.nodes import Answer, RunningNode, long_id, message, until

APPLET = b"""
;; Handlers, whose payload is a request: `send` returns the code of a transaction and keeps its
;; hash under "hash"; `twice` sends two; `trap` sends and traps; `linger` sends, then works for
;; a while; `nowhere` sends to an unknown chain, `named` with an operator; `read` keeps what a
;; contract returns under "read"; `api` what an API call answers under "api", `answer` the event
;; that follows under "answer"; `outcome` keeps its payload under "outcome" and counts under
;; "count".
(module
  (import "env" "ws_get_data" (func $get_data (param i32 i32 i32) (result i32)))
  (import "env" "ws_get_db" (func $get_db (param i32 i32 i32 i32) (result i32)))
  (import "env" "ws_set_db" (func $set_db (param i32 i32 i32 i32) (result i32)))
  (import "env" "ws_send_tx" (func $tx (param i32 i32 i32 i32 i32) (result i32)))
  (import "env" "ws_send_tx_with_operator" (func $named (param i32 i32 i32 i32 i32) (result i32)))
  (import "env" "ws_call_contract" (func $call (param i32 i32 i32 i32 i32) (result i32)))
  (import "env" "ws_api_call" (func $api (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 4)
  (data (i32.const 64) "hash")
  (data (i32.const 80) "read")
  (data (i32.const 96) "outcome")
  (data (i32.const 112) "count")
  (data (i32.const 128) "api")
  (data (i32.const 136) "answer")
  (global $heap (mut i32) (i32.const 4096))
  (func (export "alloc") (param $size i32) (result i32) (local $at i32)
    (local.set $at (global.get $heap))
    (global.set $heap (i32.add (local.get $at) (local.get $size)))
    (local.get $at))
  (func $payload (param $rid i32)
    (drop (call $get_data (local.get $rid) (i32.const 0) (i32.const 4))))
  (func $transact (param $rid i32) (result i32) (local $code i32)
    (call $payload (local.get $rid))
    (local.set $code (call $tx (i32.const 31337)
      (i32.load (i32.const 0)) (i32.load (i32.const 4)) (i32.const 8) (i32.const 12)))
    (if (i32.eqz (local.get $code)) (then (drop (call $set_db
      (i32.const 64) (i32.const 4) (i32.load (i32.const 8)) (i32.load (i32.const 12))))))
    (local.get $code))
  (func (export "send") (param $rid i32) (result i32) (call $transact (local.get $rid)))
  (func (export "twice") (param $rid i32) (result i32)
    (drop (call $transact (local.get $rid)))
    (call $transact (local.get $rid)))
  (func (export "trap") (param $rid i32) (result i32)
    (drop (call $transact (local.get $rid)))
    unreachable)
  (func (export "linger") (param $rid i32) (result i32) (local $i i32) (local $code i32)
    (local.set $code (call $transact (local.get $rid)))
    (loop $more
      (local.set $i (i32.add (local.get $i) (i32.const 1)))
      (br_if $more (i32.lt_u (local.get $i) (i32.const 1000000000))))
    (local.get $code))
  (func (export "nowhere") (param $rid i32) (result i32)
    (call $payload (local.get $rid))
    (call $tx (i32.const 5)
      (i32.load (i32.const 0)) (i32.load (i32.const 4)) (i32.const 8) (i32.const 12)))
  (func (export "named") (param $rid i32) (result i32)
    (call $payload (local.get $rid))
    (call $named (i32.const 31337)
      (i32.load (i32.const 0)) (i32.load (i32.const 4)) (i32.const 8) (i32.const 12)))
  (func (export "read") (param $rid i32) (result i32) (local $code i32)
    (call $payload (local.get $rid))
    (local.set $code (call $call (i32.const 31337)
      (i32.load (i32.const 0)) (i32.load (i32.const 4)) (i32.const 8) (i32.const 12)))
    (if (i32.eqz (local.get $code)) (then (drop (call $set_db
      (i32.const 80) (i32.const 4) (i32.load (i32.const 8)) (i32.load (i32.const 12))))))
    (local.get $code))
  (func (export "api") (param $rid i32) (result i32)
    (call $payload (local.get $rid))
    (drop (call $api
      (i32.load (i32.const 0)) (i32.load (i32.const 4)) (i32.const 8) (i32.const 12)))
    (call $set_db
      (i32.const 128) (i32.const 3) (i32.load (i32.const 8)) (i32.load (i32.const 12))))
  (func (export "answer") (param $rid i32) (result i32)
    (call $payload (local.get $rid))
    (call $set_db
      (i32.const 136) (i32.const 6) (i32.load (i32.const 0)) (i32.load (i32.const 4))))
  (func (export "outcome") (param $rid i32) (result i32)
    (call $payload (local.get $rid))
    (drop (call $set_db
      (i32.const 96) (i32.const 7) (i32.load (i32.const 0)) (i32.load (i32.const 4))))
    (i32.store (i32.const 32) (i32.const 0))
    (if (i32.eqz (call $get_db (i32.const 112) (i32.const 5) (i32.const 16) (i32.const 20)))
      (then (i32.store (i32.const 32) (i32.load (i32.load (i32.const 16))))))
    (i32.store (i32.const 32) (i32.add (i32.load (i32.const 32)) (i32.const 1)))
    (call $set_db (i32.const 112) (i32.const 5) (i32.const 32) (i32.const 4))))
"""

# Reasons for a refused transaction if the machine was slower than a guest waits for a chain.
SLOW = (
    "does not answer within",
    "cannot be reached within",
    "no endpoint answers in time",
    "no answer to ",
    "is in use by another project",
)
HANDLERS = ("send", "twice", "trap", "linger", "nowhere", "named", "read", "api", "answer")
_NUMBERS = itertools.count()
ETHER = 10**18
SOMEBODY = "0x00000000000000000000000000000000000000AA"


def request(to: str = SOMEBODY, value: int | str = 1, data: str = "", **more: Any) -> bytes:
    """Return the argument of `ws_send_tx`."""
    return json.dumps({"to": to, "value": str(value), "data": data, **more}).encode()


def is_slow(why: str) -> bool:
    """Return whether the only problem is that it took too long."""
    return any(reason in why for reason in SLOW)


class Sending:
    """A node with a chain, and a project `sender` whose operator has funds."""

    def __init__(
        self,
        folder: Path,
        evm: Evm,
        *,
        url: str = "",
        before: Sequence[str] = (),
        kind: type[RunningNode] = RunningNode,
        **chain: Any,
    ) -> None:
        self.evm = evm
        settings = {"id": evm.chain_id, "name": "local", "poll_ms": 50, **chain}
        settings |= {} if "endpoints" in chain else {"endpoint": url or evm.url}
        lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
        config = folder / "fieldbrook.toml"
        config.write_text("\n".join([*before, "[[chains]]", *lines]))
        self.node = kind(folder / "n", "--config", str(config))
        self.node.log_in()
        self.address = self.node.call("GET", "/account/operatoraddr").body.decode()
        self.fund(100 * ETHER)
        self.create("sender")

    def create(self, project: str, outcomes: bool = True, **more: Any) -> None:
        """Create a project with the applet and a publisher."""
        self.node.create_project(project)
        strategies = [{"eventType": name.upper(), "handler": name} for name in HANDLERS]
        if outcomes:
            strategies.append({"eventType": "TX_RESULT", "handler": "outcome"})
        applet = self.node.deploy(project, APPLET, name=project, strategies=strategies, **more)
        self.applets = {**getattr(self, "applets", {}), project: applet["appletID"]}
        publisher = self.node.add_publisher(project, f"d-{project}")
        self.publishers = {**getattr(self, "publishers", {}), project: publisher}

    def fund(self, wei: int) -> None:
        """Set the balance of the operator."""
        self.evm.fund(self.address, wei)

    def event(
        self, handler: str, payload: bytes, event_id: str = "", project: str = "sender"
    ) -> Answer:
        """Send an event to a handler of the applet."""
        body = message(self.publishers[project], payload, handler.upper())
        if event_id:
            body["header"] |= {"event_id": event_id, "pub_time": 1_666_211_451}
        return self.node.send(project, body)

    def send(self, handler: str, payload: bytes, project: str = "sender") -> int:
        """Send an event and return the handler's code."""
        answer = self.event(handler, payload, project=project)
        assert answer.status == 201, answer
        code: int = answer.json["results"][0]["code"]
        return code

    def sends(
        self, handler: str, payload: bytes, project: str = "sender", name: str = "sent"
    ) -> str:
        """Make a handler send a transaction; return the id of its event, which contains `name`. If
        the chain took too long for the guest, another event is sent."""

        def sent() -> str:
            event_id = long_id(f"{name}-{next(_NUMBERS)}")
            code, why = self._tries(handler, payload, project, event_id)
            assert code == 0 or is_slow(why), (code, why)
            return "" if code else event_id

        return str(until(sent, "a transaction is sent"))

    def refuses(self, handler: str, payload: bytes, reason: str, project: str = "sender") -> None:
        """Check that a handler's transaction is refused for a reason; timeouts are ignored if the
        reason is another one."""

        def refused() -> bool:
            code, why = self._tries(handler, payload, project, f"refused-{next(_NUMBERS)}")
            assert code == -1
            assert reason in why or is_slow(why), why
            return reason in why

        until(refused, reason)

    def _tries(self, handler: str, payload: bytes, project: str, event_id: str) -> tuple[int, str]:
        """Return the handler's code, and the event's log lines if the code is -1."""
        answer = self.event(handler, payload, event_id, project)
        assert answer.status == 201, answer
        code: int = answer.json["results"][0]["code"]

        def why() -> str:
            rows = self.node.call("GET", f"/applet_log/{project}?after=-100").json["data"]
            return "\n".join(row["msg"] for row in rows if row["eventID"] == event_id)

        return code, str(until(why, "the reason is in the log")) if code == -1 else ""

    def stored(self, key: str, project: str = "sender") -> bytes:
        """Return the value that the applet has stored."""
        return self.node.kv(project, self.applets[project], key.encode())

    def outcomes(self) -> int:
        """Return the number of outcomes that have arrived."""
        return int.from_bytes(self.stored("count"), "little")

    def logged(self, project: str = "sender") -> str:
        """Return the applet log as one text."""
        rows = self.node.call("GET", f"/applet_log/{project}?after=-100").json["data"]
        return "\n".join(row["msg"] for row in rows)

    def logs(self, text: str, project: str = "sender") -> None:
        """Wait until the applet log contains a text."""
        until(lambda: text in self.logged(project), f"{text!r} in the applet log")

    def sent(self) -> int:
        """Return the number of the operator's transactions on the chain."""
        return int(self.evm.rpc("eth_getTransactionCount", self.address, "latest"), 16)

    def on_chain(self) -> list[tuple[int, int]]:
        """Return nonces and values of the operator's transactions, in the order of the chain."""
        sender, blocks = self.address.lower(), []
        numbers = range(self.evm.height + 1)
        for at in range(0, len(numbers), 200):
            part = numbers[at : at + 200]
            blocks += self.evm.batch([("eth_getBlockByNumber", hex(n), True) for n in part])
        return [
            (int(row["nonce"], 16), int(row["value"], 16))
            for block in blocks
            for row in block["transactions"]
            if row["from"] == sender
        ]

    def rows(self) -> list[Transaction]:
        """Return the project's transactions and leases from the store of the chain's process."""
        path = chain_path(self.node.data / "chains", self.evm.chain_id)
        store = ChainStoreReader.open_if_exists(path)
        assert store is not None
        try:
            return TransactionReader(store.environment).all()
        finally:
            store.close()

    def at_rest(self) -> bool:
        """Return whether there is no lease, and every transaction has an outcome that its project
        has received."""
        return all(row.state in FINISHED and row.reported for row in self.rows())

    def settled(self, count: int) -> None:
        """Wait until the chain has this number of transactions of the operator, and no more
        come."""
        until(lambda: self.sent() >= count, f"{count} transactions in the chain")
        assert self.sent() == count
