"""The key of a project is replaced while it sends: each transaction is signed with the old or the
new key."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.chain.evm import Evm
from tests.chain.reading import providers
from tests.chain.senders import ETHER, Sending, request
from tests.support.nodes import until
from tests.support.shell import Shell

ROTATIONS = 6


@pytest.mark.thorough
def test_while_a_key_is_exchanged_nothing_is_signed_with_the_default_one(
    tmp_path: Path, evm: Evm
) -> None:
    with providers(evm, ["ankr"], failures=0.0, seed=1) as [endpoint]:
        sending = Sending(tmp_path, evm, url=endpoint.url)
        try:
            _exchange(sending, Shell(tmp_path / "config", sending.node))
        finally:
            sending.node.stop()


def _exchange(sending: Sending, shell: Shell) -> None:
    node, evm = sending.node, sending.evm
    made = [node.call("POST", "/operator/generate", {"name": name}).json for name in ("a", "b")]
    for operator in made:
        evm.rpc("anvil_setBalance", operator["address"], hex(ETHER))
    project = node.call("GET", "/project/x/sender/data").json["projectID"]
    shell("operator", "use", "sender", "a")
    codes: list[int] = []
    ended = threading.Event()

    def send() -> None:
        while not ended.is_set():
            codes.append(sending.send("send", request(value=1, gasLimit=21_000)))

    def signed_by(name: str) -> int:
        return sum(row.operator_name == name for row in sending.rows())

    thread = threading.Thread(target=send)
    thread.start()
    try:
        for operator in itertools.islice(itertools.cycle(reversed(made)), ROTATIONS):
            name, before = operator["name"], signed_by(operator["name"])
            path = f"/project_operator/{project}/{operator['operatorID']}"
            assert node.call("PUT", path).status == 200
            until(partial(_exceeds, signed_by, name, before), f"{name} signs")
        shell("operator", "use", "sender", "b")
    finally:
        ended.set()
        thread.join()
    until(sending.at_rest, "nothing is under way")
    signed = [row.operator_name for row in sending.rows()]
    assert len(signed) == codes.count(0) >= ROTATIONS
    assert set(codes) == {0}
    assert set(signed) == {"a", "b"}
    assert sending.sent() == 0, "nothing is of the default operator"
    on_chain = [int(evm.rpc("eth_getTransactionCount", o["address"], "latest"), 16) for o in made]
    assert sum(on_chain) == len(signed)


def _exceeds(signed_by: Callable[[str], int], name: str, before: int) -> bool:
    return signed_by(name) > before
