"""A transaction of a traced event has a span that ends when an endpoint has accepted the
transaction."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.chain.evm import Evm
from tests.chain.senders import Sending, request
from tests.support.collector import collecting
from tests.support.nodes import until


@pytest.mark.thorough
def test_a_transaction_is_a_span_below_that_of_its_handler(evm: Evm, tmp_path: Path) -> None:
    with collecting() as collector:
        sending = Sending(tmp_path, evm, before=[f"otlp_endpoint = {json.dumps(collector.url)}"])
        try:
            sending.sends("send", request(value=7))
            sending.settled(1)
            sent = until(
                lambda: [span for span in collector.spans if span.name == "transaction.submit"],
                "the span of the transaction",
            )
            (submit,) = sent
            names = ("gateway.receive", "project.handle", "journal.commit", "transaction.submit")
            spans = collector.of_trace(submit.trace, *names)
            assert submit.parent == spans["project.handle"].span
            assert spans["project.handle"].parent == spans["gateway.receive"].span
            hash_ = sending.stored("hash").decode()
            assert submit.attributes["fieldbrook.transaction.hash"] == hash_
            assert submit.attributes["fieldbrook.chain.id"] == str(evm.chain_id)
            assert submit.part == f"chain:{evm.chain_id}"
        finally:
            sending.node.stop()
