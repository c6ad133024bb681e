"""Which chain a call is for."""

from __future__ import annotations

from pathlib import Path

import pytest

from fieldbrook.actors.project.chains import ChainName, ProjectChains, chain_named
from fieldbrook.core.errors import ChainUnavailableError
from fieldbrook.wasm.run import EffectRefusedError, NotInBatchError, Run

ONE = ChainName(4690, "iotex-testnet")
TWO = ChainName(1, "ethereum-mainnet")


def test_a_call_without_a_chain_goes_to_the_only_one() -> None:
    assert chain_named([ONE], None) == ONE


def test_a_call_without_a_chain_goes_to_the_default_among_several() -> None:
    assert chain_named([ONE, TWO], None, 1) == TWO
    assert chain_named([ONE, TWO], 4690, 1) == ONE


def test_a_call_without_a_chain_is_told_which_there_are_and_what_chooses_one() -> None:
    with pytest.raises(EffectRefusedError) as caught:
        chain_named([ONE, TWO], None)
    reason = str(caught.value)
    assert "4690 (iotex-testnet), 1 (ethereum-mainnet)" in reason
    assert "the setting default_chain" in reason
    assert "ws_send_tx" in reason


def test_a_chain_that_is_not_there_is_named() -> None:
    for chains in ([], [ONE]):
        with pytest.raises(EffectRefusedError, match="chain 5 is not configured"):
            chain_named(chains, 5)
    with pytest.raises(EffectRefusedError, match="no chain is configured"):
        chain_named([], None)


class Clock:
    """The clock of the module under test, which advances only while it sleeps."""

    def __init__(self) -> None:
        self.now = 1.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds + 0.001


def test_a_process_that_is_down_is_waited_for_before_the_deadline_and_told_as_the_project_wants(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr("fieldbrook.actors.project.chains.time", clock)
    chains = ProjectChains(1, [ONE], tmp_path, lambda _part: [])
    run = Run(b"")
    for retries, error in ((False, EffectRefusedError), (True, ChainUnavailableError)):
        chains.retries = retries
        asked_at = clock.now
        run.ends_at = asked_at + 1.0
        with pytest.raises(error, match="chain iotex-testnet: its process cannot be reached"):
            chains.call(run, ONE, b"{}")
        assert asked_at + 0.5 < clock.now < run.ends_at


def test_in_a_batch_no_process_is_waited_for(tmp_path: Path) -> None:
    run = Run(b"")
    run.ends_at = 0.0
    with pytest.raises(NotInBatchError):
        ProjectChains(1, [ONE], tmp_path, lambda _part: []).call(run, ONE, b"{}")
