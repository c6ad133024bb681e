"""A speculative run: runs a handler before the turn of its event, and validates the run at the
turn.

The state that such a run reads may change before the turn. Therefore all answers of host functions
are recorded with the result. When the turn comes, the project validates the run: if the host
functions would give the same answers now, the result counts. Otherwise it is dropped without
effect.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from fieldbrook.actors.project.capabilities import is_system
from fieldbrook.wasm.run import (
    ApiCall,
    Capabilities,
    EffectRefusedError,
    Host,
    Message,
    NotInBatchError,
    Run,
)

TOPIC, API = "topic", "api"
RECORDED_BYTES = 16 << 20
"""How many bytes of questions and answers a speculative run may have; with more, it is dropped, and
the handler runs at the turn of its event."""
_ANSWER_BYTES = 128  # counted for each answer in addition to its content

Query = tuple[str, tuple[str, ...], Any]
"""A question to the capabilities, its arguments, and the answer."""


class SpeculativeRun(NamedTuple):
    """The result of a run before its turn.

    `run` has the logs, writes and effects. `reads` maps each key that the run read to its value;
    `queries` has the questions to the capabilities with their answers. `seconds` is its CPU time.
    """

    code: int
    error: str
    run: Run
    reads: Mapping[bytes, bytes | None]
    queries: Sequence[Query]
    seconds: float

    @property
    def size(self) -> int:
        """About how many bytes it holds."""
        effects = self.run.effects
        return (
            sum(len(key) + len(value) for key, value in self.run.writes.items())
            + sum(len(key) + len(value or b"") for key, value in self.reads.items())
            + sum(_asked_bytes(*query) for query in self.queries)
            + sum(len(effect.payload) for effect in effects if isinstance(effect, Message))
            + sum(len(effect.request) for effect in effects if isinstance(effect, ApiCall))
            + sum(len(text) for _, _, text in self.run.logs)
        )


class SpeculativeCapabilities(Capabilities):
    """The capabilities of a run before its turn; they record every answer.

    `void` is set when the run asked for something that is only possible at the turn of its event,
    or for more than `RECORDED_BYTES`. The result of such a run is dropped.
    """

    def __init__(self, project: Capabilities) -> None:
        self._project = project
        self.void = False
        self.queries: list[Query] = []
        self._left = RECORDED_BYTES

    def count(self, size: int) -> None:
        """Count the bytes of a recorded answer and its question.

        Raises:
            NotInBatchError: the run is void and ends, because it exceeds `RECORDED_BYTES`: a
                handler may read hundreds of values that are as large as its memory.
        """
        self._left -= size + _ANSWER_BYTES
        if self._left < 0:
            self.void = True
            raise NotInBatchError

    def check_topic(self, topic: str) -> None:
        """See `Capabilities.check_topic`."""
        refusal = self._query(TOPIC, topic)
        if refusal is not None:
            raise EffectRefusedError(refusal)

    def api_refusal(self, method: str, url: str) -> tuple[int, str] | None:
        """See `Capabilities.api_refusal`. Services of the node itself void the run."""
        if is_system(url):
            self._give_up()
        refusal: tuple[int, str] | None = self._query(API, method, url)
        return refusal

    def send_transaction(self, *_: object, **__: object) -> NoReturn:
        """Void the run: a transaction is signed with the next nonce, which is known only at the
        turn."""
        self._give_up()

    def call_contract(self, *_: object, **__: object) -> NoReturn:
        """Void the run: at the turn the chain may answer differently."""
        self._give_up()

    def _give_up(self) -> NoReturn:
        self.void = True
        raise EffectRefusedError("this can only be done when the event's turn has come")

    def _query(self, question: str, *arguments: str) -> Any:
        answer = _ask(self._project, question, arguments)
        self.count(_asked_bytes(question, arguments, answer))
        self.queries.append((question, arguments, answer))
        return answer


def speculate(host: Host, handler: str, run: Run) -> SpeculativeRun | None:
    """Run a handler before its turn.

    Args:
        host: a host that no other thread uses.
        handler: the handler's name.
        run: its input. `read` and `capabilities` are called in this thread, and may answer
            differently when the turn has come.

    Returns:
        The result; None if the handler has to be run when its turn has come.

    Raises:
        NodeError: `run.read` raised it.
    """
    began = time.thread_time()
    read, reads = run.read, dict[bytes, bytes | None]()

    capabilities = SpeculativeCapabilities(run.capabilities)

    def recorded(key: bytes) -> bytes | None:
        if key not in reads:  # if a key is read again, its first value is the one to validate
            value = read(key)
            capabilities.count(len(key) + len(value or b""))
            reads[key] = value
        return reads[key]

    run.read, run.capabilities = recorded, capabilities
    code, error = host.run(handler, run)
    if capabilities.void:
        return None
    seconds = time.thread_time() - began
    return SpeculativeRun(code, error, run, reads, capabilities.queries, seconds)


def is_valid(speculative: SpeculativeRun, run: Run) -> bool:
    """Whether `run`, whose turn has come, gives the answers that the speculative run got.

    Raises:
        NodeError: `run.read` failed.
    """
    return all(run.read(key) == value for key, value in speculative.reads.items()) and all(
        _ask(run.capabilities, question, arguments) == answer
        for question, arguments, answer in speculative.queries
    )


def adopt(speculative: SpeculativeRun, run: Run) -> tuple[int, str]:
    """Copy the logs, writes and effects of a valid run into `run`; return its code and error."""
    run.logs.extend(speculative.run.logs)
    run.writes.update(speculative.run.writes)
    run.effects.extend(speculative.run.effects)
    return speculative.code, speculative.error


def _asked_bytes(_question: str, arguments: Sequence[str], answer: Any) -> int:
    """About how many bytes a question and its answer hold."""
    told = answer if isinstance(answer, str) else "" if answer is None else answer[1]
    return sum(map(len, arguments)) + len(told)


def _ask(
    capabilities: Capabilities, question: str, arguments: Sequence[str]
) -> tuple[int, str] | str | None:
    """Ask capabilities about a topic or an API call; return the refusal, or None."""
    if question == API:
        return capabilities.api_refusal(arguments[0], arguments[1])
    try:
        capabilities.check_topic(arguments[0])
    except EffectRefusedError as error:
        return str(error)
    return None
