"""One handler run as its host functions see it, and what can perform it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from fieldbrook.wasm.seeded import Seeded


def _nothing(_key: bytes) -> bytes | None:
    return None


class Message(NamedTuple):
    """An MQTT message that leaves with the commit."""

    topic: str
    payload: bytes


class ApiCall(NamedTuple):
    """A request to be carried out after the commit; its response comes as an event of
    type `event_type`. `request` is JSON as the guest gave it."""

    event_type: str
    request: bytes


class Metric(NamedTuple):
    """JSON that the applet wants kept with the time."""

    value: str


class Transaction(NamedTuple):
    """A signed transaction that leaves with the commit. `chain` is who sends it, `key` names
    the call, `body` is what it is sent from; `hash` is what the guest is told."""

    chain: str
    key: bytes
    hash: str
    name: str
    body: bytes


Effect = Message | ApiCall | Metric | Transaction


class Surroundings:
    """What a project lets its applets reach; the default is nothing.

    Methods raise `EffectRefusedError` with the reason when something cannot be done.
    """

    seeded: Seeded | None = None
    """Resource id, time and random numbers of a run that is to be repeatable; None: the
    machine's own."""

    def check_topic(self, topic: str) -> None:
        """Raise unless a message may be published to `topic`."""
        raise EffectRefusedError("there is no MQTT broker")

    def api_refusal(self, method: str, url: str) -> tuple[int, str] | None:
        """The HTTP status and the reason for a request that cannot be carried out."""
        return 404, f"{method} {url}: there is no such route"

    def send_transaction(
        self, run: Run, chain_id: int | None, operator: str | None, request: bytes
    ) -> Transaction:
        """Prepare a transaction of a run that leaves with the commit. `chain_id` None is
        the node's only chain."""
        raise EffectRefusedError(_no_chain(chain_id))

    def api_transaction(
        self, run: Run, method: str, url: str, event_type: str, request: bytes
    ) -> tuple[int, Transaction | str] | None:
        """What a request is answered that is a transaction: its HTTP status, and the
        transaction, or the reason why there is none. None: it is another request. `request`
        is JSON as the guest gave it."""
        return None

    def call_contract(self, chain_id: int | None, request: bytes) -> bytes:
        """What a contract returns."""
        raise EffectRefusedError(_no_chain(chain_id))


def _no_chain(chain_id: int | None) -> str:
    return "no chain is configured" if chain_id is None else f"chain {chain_id} is not configured"


class EffectRefusedError(Exception):
    """Something outside the applet cannot be reached, or not in this way; the text says why."""


_NOWHERE = Surroundings()


class SqlSession(Protocol):
    """The project's database, as one run may use it.

    Both take the request as the applet sent it and the moment, on the monotonic clock in
    seconds, when the run's time is over.

    Raises:
        StatementError: the applet's statement was not carried out, for the reason given.
        NodeError: the node cannot carry out any; ends the run, as `Run.read` does.
    """

    def query(self, request: bytes, ends_at: float) -> bytes:
        """Carry a statement out and give its rows as JSON; no row is no bytes."""
        ...

    def execute(self, request: bytes, ends_at: float) -> None:
        """Carry a statement out."""
        ...


class Run:
    """What a handler is given and what it leaves behind. Used for one run, then read.

    `read` looks a key up below the overlay; it may raise a NodeError, which ends the run
    and comes out of `Host.run`. `writes` is the overlay: the handler sees its own writes
    first. `effects` leave the node once the writes are on disk. `logs` holds (level,
    source, text); it stays whatever becomes of the run, while `writes` and `effects` count
    only when the run did not fail. `sql` is None in a project without a database; whoever
    gives one keeps or undoes what the run did there. `origin` is the event and what of it
    runs, as its surroundings know them.
    """

    __slots__ = (
        "effects",
        "env",
        "event_type",
        "logs",
        "origin",
        "payload",
        "read",
        "sql",
        "surroundings",
        "writes",
    )

    def __init__(
        self,
        payload: bytes,
        event_type: str = "DEFAULT",
        env: Mapping[str, str] | None = None,
        read: Callable[[bytes], bytes | None] = _nothing,
        surroundings: Surroundings = _NOWHERE,
        sql: SqlSession | None = None,
        origin: tuple[object, ...] = (),
    ) -> None:
        self.payload = payload
        self.event_type = event_type
        self.env: Mapping[str, str] = {} if env is None else env
        self.read = read
        self.surroundings = surroundings
        self.sql = sql
        self.origin = origin
        self.writes: dict[bytes, bytes] = {}
        self.effects: list[Effect] = []
        self.logs: list[tuple[int, str, str]] = []

    def forget(self) -> None:
        """As if it had not run yet."""
        self.writes.clear()
        self.effects.clear()
        self.logs.clear()


class Host(Protocol):
    """A linked applet, ready to run. One thread at a time.

    `uses_sql`: it asks for the project's database, so `Run.sql` matters to it.
    """

    uses_sql: bool

    @property
    def handlers(self) -> tuple[str, ...]:
        """The names `run` accepts."""
        ...

    def run(self, handler: str, run: Run) -> tuple[int, str]:
        """Run one handler over one event in an instance of its own.

        Returns:
            The handler's code and an empty text, or -1 and the reason why there is no
            code: a trap, a budget, an exit, a handler that is not exported.

        Raises:
            NodeError: what `run.read` raised; nothing of the run may be kept but its logs.
        """
        ...

    def run_batch(self, handler: str, runs: Sequence[Run]) -> list[tuple[int, str]]:
        """Run one handler over several events in one instance, as many as go well.

        For applets that allow it: an event may find what earlier ones left in the
        instance. Each has budgets of its own and sees what earlier ones wrote.

        An applet that uses SQL is not run so: its statements cost more than an instance,
        and each of its runs is undone by itself.

        Returns:
            Codes and empty texts of the first runs. The next one, if any, left no trace
            and is to be given to `run`: it failed here, did not fit or came too late, and
            only an instance of its own tells what is its own fault.
        """
        ...

    def close(self) -> None:
        """Release the module. The host cannot run afterwards."""
        ...
