"""Which chain a call means."""

from __future__ import annotations

import pytest

from fieldbrook.actors.project.chains import ChainName, chain_named
from fieldbrook.wasm.run import EffectRefusedError

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
