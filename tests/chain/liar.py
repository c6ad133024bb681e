"""An endpoint that lies: it changes the answers of another endpoint so that they cannot be true."""

from __future__ import annotations

import copy
import random
from typing import Any

from tests.chain.evm import word
from tests.chain.forked import ForkedChain

_JUNK: tuple[Any, ...] = (
    *(None, 5, -1, 1.5, True, {"a": [1]}, "", "0xf", "zz", "0x" + "f" * 65, "é", "-0x1"),
)
_NUMBERS = ("number", "blockNumber", "logIndex", "transactionIndex")


class Liar(ForkedChain):
    """Answers like its chain while `honest`; otherwise some answers are impossible: fields are
    missing or have another type, numbers are huge, logs occur twice or belong to other blocks, or
    are missing although the block's header shows some. The filter in a header is never changed,
    because nobody could detect that."""

    honest = True

    def __init__(self, height: int, seed: int) -> None:
        super().__init__(height)
        self.told = 0  # lies
        self._random = random.Random(seed)

    async def request(self, method: str, params: list[Any]) -> dict[str, Any]:
        answer = copy.deepcopy(await super().request(method, params))
        if self.honest or self._random.random() > 0.3:
            return answer
        self.told += 1
        return self._spoilt(method, answer)

    def _spoilt(self, method: str, answer: dict[str, Any]) -> dict[str, Any]:
        rng, result = self._random, answer.get("result")
        if rng.random() < 0.1:
            return rng.choice([{}, {"error": rng.choice(_JUNK[1:])}, {"result": 7}])
        if method == "eth_getLogs" and isinstance(result, list) and result:
            log = rng.choice(result)
            kind = rng.randrange(5)
            if kind == 0:
                result.insert(rng.randrange(len(result) + 1), copy.deepcopy(log))
            elif kind == 1:
                result.append({**log, "address": "0x" + "ee" * 20, "logIndex": "0x77"})
            elif kind == 2:
                result.append({**log, "blockNumber": hex(int(log["blockNumber"], 16) + 1)})
            elif kind == 3:
                result.clear()
            else:
                self._spoil(log)
        elif isinstance(result, dict):
            self._spoil(result)
        elif not isinstance(result, list):
            answer["result"] = rng.choice(_JUNK)
        return answer

    def _spoil(self, found: dict[str, Any]) -> None:
        rng = self._random
        # A lenient reader would take an invalid address for that of a contract that nobody watches.
        key = rng.choice([key for key in found if key not in ("transactions", "logsBloom")])
        if key in _NUMBERS and rng.random() < 0.5:
            found[key] = rng.choice(["0x" + "f" * 64, "0x8000000000000000", word(1 << 40)])
        elif key == "removed":
            found[key] = True
        elif rng.random() < 0.3:
            del found[key]
        else:
            found[key] = rng.choice(_JUNK)
