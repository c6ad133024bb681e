"""A project's client of the chains: the project waits for a chain's process, never the reverse.

The chain's process prepares a transaction: it leases a nonce and signs. The transaction goes
into the project's outbox with the commit of its event. After each commit the project reports
which nonce leases of the batch were committed. After a lost connection the outbox decides which
leases are committed: the first frame of a new connection names the leases in the outbox and those
of the current batch.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

from fieldbrook.actors.wire import FrameReader, WireEvent, frame, name_of, pack, unpack
from fieldbrook.core.errors import ChainUnavailableError, NodeError
from fieldbrook.observability import fault_points
from fieldbrook.storage.project.deduplication import digest_of
from fieldbrook.wasm.run import EffectRefusedError, NotInBatchError, Run, Transaction

TX_EVENT = "TX_RESULT"
"""The type of the event that reports the outcome of a transaction of `ws_send_tx`."""

Origin = tuple[WireEvent, int]
"""The origin of a run in a project (`Run.origin`): its event, and the id of its strategy."""

HELLO, COMMITTED, HELD = "hello", "committed", "held"
"""The first frame of a project has three fields: the project's id, the keys of the leases that its
outbox holds for the chain, and the keys of the leases that the current batch holds. A chain can
request the same fields with a frame `{HELLO: part}` to the project."""
PREPARE, CALL, SETTLED = "prepare", "call", "settled"
"""Further frames: a transaction to prepare, a contract to call, the keys that a batch committed.
The first two contain a number, and how many seconds the project waits. Their answer is `(number,
True, result)`, `(number, False, reason)`, or `(number, None, reason)` if a later try may
succeed."""
NUMBER, WITHIN_S = "number", "within_s"

_READ_BYTES = 1 << 16
_WAITED_PART = 0.9  # share of the remaining time of a run; in the rest the handler can react
_MOST_WAITED_S = 60.0  # how long a run without a deadline waits
_CONNECT_AGAIN_S = 0.02
_NOTICE_LIMIT_S = 2.0


class ChainName(NamedTuple):
    """A chain of the node."""

    chain_id: int
    name: str

    @property
    def part(self) -> str:
        """The name of the chain's process, which is also the kind of its outbox entries."""
        return f"chain:{self.chain_id}"


def chain_socket(run_dir: Path, part: str) -> Path:
    """Return the socket path of a chain's process. It is short, because the limit is 108 bytes."""
    return run_dir / f"c{int(part.partition(':')[2]):x}"


def call_key(run: Run, index: int) -> bytes:
    """Return the idempotency key of a transaction: event, strategy and index of the call."""
    event, strategy_id = cast("Origin", run.origin)
    # The key contains more than the event's id: otherwise a sender that repeats an id would get the
    # first transaction again.
    digest = digest_of(event[1], event[0], name_of(event), event[3])
    return digest + strategy_id.to_bytes(8, "big") + index.to_bytes(4, "big")


def listed(chains: Iterable[ChainName]) -> str:
    """Return a list of chains as text, for messages."""
    return ", ".join(f"{chain.chain_id} ({chain.name})" for chain in chains) or "none"


def unknown_chain(name: str, chains: Iterable[ChainName]) -> str:
    """Return the reason for refusing a request that names an unknown chain."""
    return f"chain {name[:64]!r}: unknown; there are {listed(chains)}"


def chain_named(
    chains: Sequence[ChainName], chain_id: int | None, default: int | None = None
) -> ChainName:
    """Return the chain with this id; None gives the `default`, or else the only chain.

    Raises:
        EffectRefusedError: there is no such chain; or the id is None, and there are several chains
            without a default.
    """
    if not chains and chain_id is None:
        raise EffectRefusedError("no chain is configured")
    wanted = default if chain_id is None else chain_id
    if wanted is None and len(chains) == 1:
        return chains[0]
    for chain in chains:
        if chain.chain_id == wanted:
            return chain
    if wanted is not None:
        raise EffectRefusedError(f"chain {wanted} is not configured")
    known = listed(chains)
    raise EffectRefusedError(
        f"the call names no chain, and there are several: {known}; choose one by "
        f"the setting default_chain, or pass the chain's id as the first parameter of ws_send_tx "
        f"or ws_call_contract"
    )


class ProjectChains:
    """The connections of one project to the chains, and the leases of its current batch.

    Args:
        project_id: the project that sends the transactions.
        chains: the chains of the settings.
        run_dir: the folder of the sockets.
        committed: returns the keys of the leases that the outbox holds for a chain's process, given
            the name of the process (`chain:ID`).
        default: the id of the chain for calls that name none; None means the only chain.

    Attributes:
        retries: what happens if a handler needs a chain that is unavailable. True: the event is
            refused, and its sender tries again. False: the handler gets an error.
    """

    def __init__(
        self,
        project_id: int,
        chains: Sequence[ChainName],
        run_dir: Path,
        committed: Callable[[str], list[bytes]],
        default: int | None = None,
    ) -> None:
        self._project_id = project_id
        self._chains = {chain.chain_id: chain for chain in chains}
        self._default = default
        self._run_dir = run_dir
        self._committed = committed
        self.retries = False
        self._connections: dict[str, _ChainConnection] = {}
        self._open: dict[str, dict[bytes, Run]] = {}

    def named(self, chain_id: int | None) -> ChainName:
        """See `chain_named`."""
        return chain_named(list(self._chains.values()), chain_id, self._default)

    def with_name(self, name: str) -> ChainName | None:
        """The chain with this name, or with this id in decimal."""
        for chain in self._chains.values():
            if name in (chain.name, str(chain.chain_id)):
                return chain
        return None

    def unknown(self, name: str) -> str:
        """See `unknown_chain`."""
        return unknown_chain(name, self._chains.values())

    def prepare(
        self,
        run: Run,
        chain: ChainName,
        operator: str | None,
        request: bytes,
        event_type: str = TX_EVENT,
        api: bytes = b"",
    ) -> Transaction:
        """Have the chain's process prepare a transaction of a run.

        Args:
            run: the run; the index of the call is the number of its transactions so far.
            chain: the chain to send it to.
            operator: the name of the account's operator that signs; None means the operator of the
                project.
            request: the request of the guest, as JSON.
            event_type: the type of the event that reports the outcome.
            api: the API call that the request came from, if any.

        Raises:
            EffectRefusedError: no transaction was prepared; the text has the reason.
            ChainUnavailableError: the chain is unavailable, and `retries` is set.
        """
        sent = sum(1 for effect in run.effects if isinstance(effect, Transaction))
        key = call_key(run, sent)
        question = {
            PREPARE: key,
            "held": self._held(chain.part),
            "operator": operator,
            "request": request,
            "event_id": cast("Origin", run.origin)[0][2],
            "event_type": event_type,
            "api": api,
        }
        fault_points.hit("project.before_chain_request")
        hash_, name, body = self._request(run, chain, question)
        fault_points.hit("project.chain_answer_received")
        self._open.setdefault(chain.part, {})[key] = run
        return Transaction(chain.part, key, hash_, name, body)

    def call(self, run: Run, chain: ChainName, request: bytes) -> bytes:
        """Call a contract for a run and return its result.

        Raises:
            EffectRefusedError: there is no result; the text has the reason.
            ChainUnavailableError: the chain is unavailable, and `retries` is set.
        """
        result: bytes = self._request(run, chain, {CALL: request})
        return result

    def withdraw(self, part: str, keys: Iterable[bytes]) -> None:
        """Forget leases of the current batch whose event is refused."""
        for key in keys:
            self._open.get(part, {}).pop(key, None)

    def settle(self, committed: Mapping[str, list[bytes]] | None) -> None:
        """Report to the chains which leases of the finished batch were committed.

        The other leases of the batch were not committed. `committed` is None if the outcome is
        unknown: then the connections are closed, and the first frame of the next connection reports
        the state of the outbox.
        """
        for part in self._open:
            connection = self._connections.get(part)
            if connection is None:
                continue
            if committed is None:
                connection.close()
            else:
                connection.notify({SETTLED: committed.get(part, [])})
                fault_points.hit("project.leases_settled")
        self._open = {}

    def hello(self, part: str) -> dict[str, Any]:
        """Return the leases that the outbox and the current batch use, for a chain's process.

        Raises:
            StoreError: the outbox cannot be read.
        """
        return {
            HELLO: self._project_id,
            COMMITTED: self._committed(part),
            HELD: self._held(part),
        }

    def close(self) -> None:
        """Close the connections."""
        for connection in self._connections.values():
            connection.close()

    def _held(self, part: str) -> list[bytes]:
        """Return the leases of the current batch whose runs have not failed."""
        held = []
        for key, run in self._open.get(part, {}).items():
            if any(isinstance(e, Transaction) and e.key == key for e in run.effects):
                held.append(key)
        return held

    def _request(self, run: Run, chain: ChainName, question: dict[str, Any]) -> Any:
        """Ask a chain's process, and wait for it within the run's deadline."""
        if not run.ends_at:
            raise NotInBatchError
        within_s = min(_MOST_WAITED_S, _WAITED_PART * (run.ends_at - time.monotonic()))
        connection = self._connections.get(chain.part)
        if connection is None:
            path = chain_socket(self._run_dir, chain.part)
            connection = self._connections[chain.part] = _ChainConnection(
                path, lambda: self.hello(chain.part)
            )
        try:
            good, result = connection.request(question, within_s)
        except TimeoutError:
            answers = "does not answer" if connection.is_open else "cannot be reached"
            connection.close()
            reason = f"its process {answers} within {max(0.0, within_s):.1f} s"
            raise self._unavailable(chain, reason) from None
        except ValueError:
            connection.close()
            reason = f"chain {chain.name}: its process sent a malformed answer"
            raise EffectRefusedError(reason) from None
        except NodeError as error:
            connection.close()
            raise EffectRefusedError(f"chain {chain.name}: {error}") from error
        if good is None:
            raise self._unavailable(chain, result)
        if not good:
            raise EffectRefusedError(f"chain {chain.name}: {result}")
        return result

    def _unavailable(self, chain: ChainName, reason: str) -> Exception:
        error = ChainUnavailableError(chain=chain.name, reason=reason)
        return error if self.retries else EffectRefusedError(str(error))


class _ChainConnection:
    """A connection to one chain's process; opened when needed, and again after it was lost."""

    def __init__(self, path: Path, hello: Callable[[], dict[str, Any]]) -> None:
        self._path = path
        self._hello = hello
        self._socket: socket.socket | None = None
        self._reader = FrameReader()
        self._number = 0

    @property
    def is_open(self) -> bool:
        """Whether there is a connection."""
        return self._socket is not None

    def request(self, question: dict[str, Any], within_s: float) -> tuple[bool | None, Any]:
        """Send a question and return its answer.

        While the chain's process is down, wait until it is started again, and send the question
        again. The answer is the same, because a question has a key.

        Raises:
            TimeoutError: no answer came within `within_s`.
            ValueError: the answer is malformed.
            StoreError: the outbox, which the first frame needs, could not be read.
        """
        ends_at = time.monotonic() + within_s
        self._number += 1
        pause_s = 0.0
        while True:
            try:
                connection = self._connected(ends_at)
                asked = {**question, NUMBER: self._number, WITHIN_S: _left(ends_at)}
                connection.sendall(frame(pack(asked)))
                return self._answer(connection, ends_at)
            except TimeoutError:
                raise
            except (OSError, EOFError):
                self.close()
            time.sleep(min(pause_s, _left(ends_at)))
            pause_s = _CONNECT_AGAIN_S

    def notify(self, news: dict[str, Any]) -> None:
        """Send news if there is a connection; the hello of a new connection contains them."""
        if self._socket is None:
            return
        try:
            self._socket.settimeout(_NOTICE_LIMIT_S)
            self._socket.sendall(frame(pack(news)))
        except OSError:
            self.close()

    def close(self) -> None:
        """Close the connection; the next one begins with a hello."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.close()
            self._socket = None

    def _connected(self, ends_at: float) -> socket.socket:
        if self._socket is None:
            connection = socket.socket(socket.AF_UNIX)
            try:
                connection.settimeout(_left(ends_at))
                connection.connect(str(self._path))
                connection.sendall(frame(pack(self._hello())))
            except BaseException:
                connection.close()
                raise
            self._socket, self._reader = connection, FrameReader()
        self._socket.settimeout(_left(ends_at))
        return self._socket

    def _answer(self, connection: socket.socket, ends_at: float) -> tuple[bool | None, Any]:
        while True:
            connection.settimeout(_left(ends_at))
            data = connection.recv(_READ_BYTES)
            if not data:
                raise EOFError
            for answer in self._reader.feed(data):
                number, good, result = unpack(answer)
                if number == self._number:
                    return good, result


def _left(ends_at: float) -> float:
    left = ends_at - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
