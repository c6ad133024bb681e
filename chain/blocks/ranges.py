"""How many blocks to ask for at once: what an endpoint takes is not written anywhere."""

from __future__ import annotations

_LEAST, _MOST, _FIRST = 1, 20_000, 1_000
_FEW_LOGS, _MANY_LOGS = 2_000, 8_000
_STEPS_UNTIL_TRIED_AGAIN = 16


class BlockRange:
    """The size of the next window: doubled while it goes well, halved when it was too much.

    A size that was refused is not asked for again until several smaller ones went well.
    """

    def __init__(self, first: int = _FIRST, most: int = _MOST) -> None:
        self.size = first
        self._most = self._ceiling = most
        self._went_well = 0

    def took(self, blocks: int, logs: int) -> None:
        """A window was answered."""
        if blocks < self.size:  # it was cut short for another reason: nothing is learned
            return
        self._went_well += 1
        if self._went_well >= _STEPS_UNTIL_TRIED_AGAIN:
            self._went_well = 0
            self._ceiling = min(self._most, self._ceiling * 2)
        if logs > _MANY_LOGS:
            self.size = max(_LEAST, self.size // 2)
        elif logs < _FEW_LOGS:
            self.size = min(self._ceiling, self.size * 2)

    def refused(self, blocks: int) -> bool:
        """A window was too much; whether a smaller one can be asked for."""
        self._went_well = 0
        smaller = max(_LEAST, blocks // 2)
        self._ceiling = max(_LEAST, blocks * 3 // 4)
        self.size = smaller
        return blocks > _LEAST

    def failed(self, blocks: int) -> None:
        """A window was not answered at all, perhaps because it takes too long."""
        self.size = max(min(blocks, 64), blocks // 2)
