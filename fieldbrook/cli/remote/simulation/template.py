"""Templates of payloads: text with placeholders such as `{{count}}` or `{{random 10 30}}`."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable
from dataclasses import dataclass

from fieldbrook.cli.errors import WrongUsageError

SIZE_LIMIT_BYTES = 64 << 10
PLACEHOLDERS_LIMIT = 100
_WORDS_LIMIT = 100
_NUMBER_LIMIT = 10**12
_PLACEHOLDER = re.compile(r"\{\{([^{}]*)\}\}")
_NUMBER = re.compile(r"-?[0-9]{1,13}(?:\.([0-9]{1,9}))?\Z")
_FORMS = "{{count}}, {{device}}, {{now}}, {{random A B}}, {{choice A B ...}}, {{walk START STEP}}"


@dataclass(frozen=True, slots=True)
class Moment:
    """The values for the placeholders of one event's payload."""

    device: str
    count: int
    chance: random.Random
    walks: dict[int, float]
    """The present values of the device's walks, by the number of the placeholder."""


_Write = Callable[[Moment], str]


class Template:
    """A template with valid placeholders."""

    def __init__(self, text: str) -> None:
        """Read a template.

        Raises:
            WrongUsageError: the template is too long, or a placeholder is unknown or not closed.
        """
        if len(text.encode("utf-8", "surrogateescape")) > SIZE_LIMIT_BYTES:
            raise WrongUsageError(f"the payload has more than {SIZE_LIMIT_BYTES >> 10} KiB")
        parts = _PLACEHOLDER.split(text)
        if len(parts) // 2 > PLACEHOLDERS_LIMIT:
            raise WrongUsageError(f"the payload has more than {PLACEHOLDERS_LIMIT} placeholders")
        self._texts = parts[::2]
        self._writers = [_writer(words, number) for number, words in enumerate(parts[1::2])]
        for part in self._texts:
            if "{{" in part:
                raise WrongUsageError(
                    f"a placeholder is not closed: {part[part.index('{{') :][:40]}", _known()
                )

    def render(self, moment: Moment) -> bytes:
        """Make the payload of an event."""
        made = [self._texts[0]]
        for write, text in zip(self._writers, self._texts[1:], strict=True):
            made += (write(moment), text)
        return "".join(made).encode("utf-8", "surrogateescape")


def _writer(text: str, number: int) -> _Write:
    name, *words = text.split() or [""]
    match name, words:
        case "count", []:
            return lambda moment: str(moment.count)
        case "device", []:
            return lambda moment: moment.device
        case "now", []:
            return lambda _: str(time.time_ns() // 1_000_000)
        case "random", [_, _]:
            return _random(text, *words)
        case "choice", [_, *_] if len(words) <= _WORDS_LIMIT:
            return lambda moment: moment.chance.choice(words)
        case "walk", [_, _]:
            return _walk(text, number, *words)
        case _:
            raise WrongUsageError(f"unknown placeholder {{{{{text}}}}}", _known())


def _random(text: str, first: str, last: str) -> _Write:
    low, high, decimals = _number(text, first), _number(text, last), _decimals(first, last)
    if low > high:
        raise WrongUsageError(f"{{{{{text}}}}}: {first} is more than {last}")
    if not decimals:
        return lambda moment: str(moment.chance.randint(int(low), int(high)))
    return lambda moment: f"{moment.chance.uniform(low, high):.{decimals}f}"


def _walk(text: str, number: int, start: str, step: str) -> _Write:
    begin, size, decimals = _number(text, start), abs(_number(text, step)), _decimals(start, step)

    def write(moment: Moment) -> str:
        """Return the start at first; later values differ from the previous one by at most the
        step."""
        at = begin
        if number in moment.walks:
            at = moment.walks[number] + moment.chance.uniform(-size, size)
        moment.walks[number] = at
        return f"{at:.{decimals}f}"

    return write


def _number(text: str, word: str) -> float:
    if not _NUMBER.match(word) or abs(float(word)) > _NUMBER_LIMIT:
        raise WrongUsageError(f"{{{{{text}}}}}: {word} is not a number of at most 10^12")
    return float(word)


def _decimals(*words: str) -> int:
    return max(len(word.partition(".")[2]) for word in words)


def _known() -> str:
    return f"placeholders: {_FORMS}"
