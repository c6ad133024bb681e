"""One handler run: its input, its effects, and the interfaces of the hosts that perform it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from fieldbrook.wasm.seeded import Seeded


def _nothing(_key: bytes) -> bytes | None:
    return None


class Message(NamedTuple):
    """An MQTT message that is published after the commit."""

    topic: str
    payload: bytes


class ApiCall(NamedTuple):
    """An API request that is carried out after the commit.

    Its response arrives as an event of type `event_type`. `request` is the guest's JSON,
    unchanged.
    """

    event_type: str
    request: bytes


class Metric(NamedTuple):
    """A measurement of the applet, as JSON text; it is stored with its time."""

    value: str


class Transaction(NamedTuple):
    """A signed transaction that is broadcast after the commit.

    `chain` is the chain's process that sends it (`chain:<id>`), `key` identifies the call, `body`
    is the encoded record for the outbox, and `hash` is the hash that the guest receives.
    """

    chain: str
    key: bytes
    hash: str
    name: str
    body: bytes


Effect = Message | ApiCall | Metric | Transaction


class Capabilities:
    """The capabilities that a project gives its applets: MQTT topics, API routes and chains.

    This base class gives none. Methods raise `EffectRefusedError` with the reason when a
    request cannot be carried out.
    """

    seeded: Seeded | None = None
    """The source of resource id, time and random numbers in a repeatable run; None means that the
    run uses the clock and the random numbers of the machine."""

    def check_topic(self, topic: str) -> None:
        """Check that the applet may publish to `topic`.

        Raises:
            EffectRefusedError: it may not.
        """
        raise EffectRefusedError("there is no MQTT broker")

    def api_refusal(self, method: str, url: str) -> tuple[int, str] | None:
        """Return the HTTP status and the reason if an API request is refused, None if not."""
        return 404, f"{method} {url}: there is no such route"

    def send_transaction(
        self, run: Run, chain_id: int | None, operator: str | None, request: bytes
    ) -> Transaction:
        """Sign a transaction that is broadcast after the run's commit.

        `chain_id` None means the node's only chain.
        """
        raise EffectRefusedError(_no_chain(chain_id))

    def api_transaction(
        self, run: Run, method: str, url: str, event_type: str, request: bytes
    ) -> tuple[int, Transaction | str] | None:
        """Handle an API request that sends a transaction.

        `request` is the guest's JSON, unchanged.

        Returns:
            The HTTP status of the answer, and the transaction or the reason why there is
            none. None if the request does not send a transaction.
        """
        return None

    def call_contract(self, run: Run, chain_id: int | None, request: bytes) -> bytes:
        """Call a contract without a transaction and return the contract's result."""
        raise EffectRefusedError(_no_chain(chain_id))


def _no_chain(chain_id: int | None) -> str:
    return "no chain is configured" if chain_id is None else f"chain {chain_id} is not configured"


class EffectRefusedError(Exception):
    """The project does not allow or cannot carry out an effect; the text gives the reason."""


class NotInBatchError(Exception):
    """A host function has to wait, which would delay the other events of the batch.

    The event leaves the batch and runs in an instance of its own.
    """


_NO_CAPABILITIES = Capabilities()


class SqlSession(Protocol):
    """The project's SQL database, for one run.

    Both methods take the applet's request unchanged and the run's deadline `ends_at`, in
    seconds of the monotonic clock.

    Raises:
        StatementError: the applet's statement failed, for the reason given.
        NodeError: the node cannot carry out any statement; this ends the run, as a NodeError
            of `Run.read` does.
    """

    def query(self, request: bytes, ends_at: float) -> bytes:
        """Carry out a statement and return its rows as JSON; empty bytes if there is no row."""
        ...

    def execute(self, request: bytes, ends_at: float) -> None:
        """Carry out a statement that returns no rows."""
        ...


class Run:
    """Input and output of one handler run. An object serves one run; read its outputs afterwards.

    Attributes:
        read: looks up in the store a key that `writes` does not have. It may raise a NodeError,
            which ends the run; `Host.run` raises it again.
        writes: the keys that the handler wrote. The handler's reads look here first. They
            count only when the run did not fail.
        effects: messages, calls, metrics and transactions. They leave the node after the
            writes are on disk, and count only when the run did not fail.
        logs: records (level, source, text). They are kept even when the run failed.
        sql: the project's database, None in a project without one. The caller that passes it
            commits or rolls back the run's statements.
        origin: identifies the event and the strategy under way, in a form that only
            `capabilities` interprets.
        ends_at: the run's deadline, in seconds of the monotonic clock; 0 in a batch, where
            nothing may wait (see `NotInBatchError`). The host sets it.
        memory_bytes: None by default. If it is 0, `Host.run` replaces it by the size of the
            handler's linear memory after the run. This is the largest size, because a linear memory
            never shrinks. It stays 0 if there was no instance.
    """

    __slots__ = (
        "capabilities",
        "effects",
        "ends_at",
        "env",
        "event_type",
        "logs",
        "memory_bytes",
        "origin",
        "payload",
        "read",
        "sql",
        "writes",
    )

    def __init__(
        self,
        payload: bytes,
        event_type: str = "DEFAULT",
        env: Mapping[str, str] | None = None,
        read: Callable[[bytes], bytes | None] = _nothing,
        capabilities: Capabilities = _NO_CAPABILITIES,
        sql: SqlSession | None = None,
        origin: tuple[object, ...] = (),
    ) -> None:
        self.payload = payload
        self.event_type = event_type
        self.env: Mapping[str, str] = {} if env is None else env
        self.read = read
        self.capabilities = capabilities
        self.sql = sql
        self.origin = origin
        self.ends_at = math.inf
        self.writes: dict[bytes, bytes] = {}
        self.effects: list[Effect] = []
        self.logs: list[tuple[int, str, str]] = []
        self.memory_bytes: int | None = None

    def forget(self) -> None:
        """Drop all outputs, so that the object can be run again."""
        self.writes.clear()
        self.effects.clear()
        self.logs.clear()


class Host(Protocol):
    """A linked applet, ready to run. Only one thread may use it at a time.

    `uses_sql` tells whether the applet imports SQL functions and therefore needs `Run.sql`.
    """

    uses_sql: bool

    @property
    def kept_bytes(self) -> int:
        """The memory of the instance that is kept for the next event; 0 without one."""
        ...

    @property
    def handlers(self) -> tuple[str, ...]:
        """The names `run` accepts."""
        ...

    def run(self, handler: str, run: Run) -> tuple[int, str]:
        """Run one handler over one event in an instance of its own.

        Returns:
            The handler's code and an empty text. -1 and the reason if the handler returned
            no code: a trap, an exceeded budget, an exit, or a handler that is not exported.

        Raises:
            NodeError: `run.read` or `run.sql` raised it. Only the logs of the run may be kept.
        """
        ...

    def run_batch(self, handler: str, runs: Sequence[Run]) -> list[tuple[int, str]]:
        """Run one handler over several events in one instance, up to the first failure.

        Only for applets that allow it, because an event may find memory that earlier events
        changed. Each event has its own budgets and sees the writes of earlier events.

        Applets that use SQL are never batched: their statements cost more than an instance,
        and each run must be rolled back separately.

        Returns:
            Codes and empty texts of the runs that succeeded, from the first on. If the list is
            shorter than `runs`, the next run left no outputs: it failed, did not fit or came
            too late. Pass it to `run`: only a run in an instance of its own shows whether the
            event itself causes the failure.
        """
        ...

    def copy(self) -> Host:
        """Return another host of the same module, for another thread. Any thread may call this."""
        ...

    def close(self) -> None:
        """Release the module. The host cannot run afterwards."""
        ...
