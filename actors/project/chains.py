"""A project's way to the chains: it asks a chain's process and waits, never the reverse.

A transaction is prepared by the chain's process, which leases it a nonce and signs it, and
leaves with the commit of its event, through the project's outbox. What became of a batch's
leases is told after its commit. When the two have lost each other, the outbox is what counts:
the first thing said over a new connection is which leases it holds, and which the batch under
way has.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

from fieldbrook.actors.wire import FrameReader, WireEvent, frame, name_of, pack, unpack
from fieldbrook.core.errors import NodeError
from fieldbrook.observability import fault_points
from fieldbrook.storage.project.deduplication import digest_of
from fieldbrook.wasm.run import EffectRefusedError, Run, Transaction

ANSWER_LIMIT_S = 2.0
TX_EVENT = "TX_RESULT"
"""The type of the event that tells what became of a transaction of `ws_send_tx`."""

Origin = tuple[WireEvent, int]
"""What a run in a project is of (`Run.origin`): its event, and the id of its strategy."""

HELLO, COMMITTED, HELD = "hello", "committed", "held"
"""The first frame of a project: its id, the keys of the leases its outbox has for the chain,
and of those the batch under way has. The same question to a project, the chain's part in it,
is answered by the last two."""
PREPARE, CALL, SETTLED = "prepare", "call", "settled"
"""Further frames: a transaction to prepare, a contract to call, the keys a batch committed.
The first two have a number and are answered `(number, True, result)`,
`(number, False, reason)`, or `(number, None, reason)` when no endpoint answers."""
NUMBER = "number"

_READ_BYTES = 1 << 16


class ChainName(NamedTuple):
    """A chain of the node."""

    chain_id: int
    name: str

    @property
    def part(self) -> str:
        """The chain's process, which is also the kind of its outbox entries."""
        return f"chain:{self.chain_id}"


def chain_socket(run_dir: Path, part: str) -> Path:
    """Where a chain's process listens for projects; short, such a path ends at 108 bytes."""
    return run_dir / f"c{int(part.partition(':')[2]):x}"


def call_key(run: Run, index: int) -> bytes:
    """The name of the call of a run: the event, what of it runs, and which call it is."""
    event, strategy_id = cast("Origin", run.origin)
    # Not by the event's id: with a constant one a second event would get the first's transaction.
    digest = digest_of(event[1], event[0], name_of(event), event[3])
    return digest + strategy_id.to_bytes(8, "big") + index.to_bytes(4, "big")


def listed(chains: Iterable[ChainName]) -> str:
    """Chains to choose from, in words."""
    return ", ".join(f"{chain.chain_id} ({chain.name})" for chain in chains) or "none"


def unknown_chain(name: str, chains: Iterable[ChainName]) -> str:
    """Why a request that names this chain is refused."""
    return f"chain {name[:64]!r}: unknown; there are {listed(chains)}"


def chain_named(
    chains: Sequence[ChainName], chain_id: int | None, default: int | None = None
) -> ChainName:
    """The chain with this id; None, as calls without a chain id say, is the only one there is,
    or the `default`.

    Raises:
        EffectRefusedError: there is none, or not just one.
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
        f"which chain? The call names none, and there are {known}: the setting default_chain "
        f"chooses one for such calls, and ws_send_tx and ws_call_contract with the chain's id as "
        f"first parameter choose by themselves"
    )


class ProjectChains:
    """The chains as one project reaches them, and the leases of the batch under way.

    Args:
        project_id: whose transactions these are.
        chains: those of the settings.
        run_dir: the folder of the sockets.
        committed: the keys of the leases that the outbox has for a chain's part.
        default: the id of the chain of calls that name none; None: the only one there is.
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
        self._links: dict[str, _Link] = {}
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

    @property
    def configured(self) -> bool:
        """Whether there is any chain."""
        return bool(self._chains)

    def prepare(
        self,
        run: Run,
        chain: ChainName,
        operator: str | None,
        request: bytes,
        event_type: str = TX_EVENT,
        api: bytes = b"",
    ) -> Transaction:
        """Have a transaction of a run prepared.

        Args:
            run: who asks; what it has sent before counts as its own.
            chain: where to.
            operator: the name of the account's operator that signs, None for the project's.
            request: what the guest asks for, as JSON.
            event_type: of the event that tells the outcome.
            api: the API call that asks for it, if one does.

        Raises:
            EffectRefusedError: there is no transaction, for the reason given.
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
        fault_points.passes("project.asks")
        hash_, name, body = self._ask(chain, question)
        fault_points.passes("project.has_hash")
        self._open.setdefault(chain.part, {})[key] = run
        return Transaction(chain.part, key, hash_, name, body)

    def call(self, chain: ChainName, request: bytes) -> bytes:
        """What a contract returns.

        Raises:
            EffectRefusedError: nothing, for the reason given.
        """
        result: bytes = self._ask(chain, {CALL: request})
        return result

    def settle(self, committed: Mapping[str, list[bytes]] | None) -> None:
        """The batch is over: these leases of it are committed, the others are not. None:
        that is not known, and is told when the chain asks."""
        for part in self._open:
            link = self._links.get(part)
            if link is None:
                continue
            if committed is None:
                link.close()
            else:
                link.tell({SETTLED: committed.get(part, [])})
                fault_points.passes("project.settled")
        self._open = {}

    def hello(self, part: str) -> dict[str, Any]:
        """Which leases count, for a chain that does not know.

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
        for link in self._links.values():
            link.close()

    def _held(self, part: str) -> list[bytes]:
        """Leases of the batch under way whose runs have not failed."""
        held = []
        for key, run in self._open.get(part, {}).items():
            if any(isinstance(e, Transaction) and e.key == key for e in run.effects):
                held.append(key)
        return held

    def _ask(self, chain: ChainName, question: dict[str, Any]) -> Any:
        link = self._links.get(chain.part)
        if link is None:
            path = chain_socket(self._run_dir, chain.part)
            link = self._links[chain.part] = _Link(path, lambda: self.hello(chain.part))
        try:
            good, result = link.ask(question)
        except TimeoutError:
            link.close()
            reason = f"chain {chain.name} does not answer within {ANSWER_LIMIT_S:g} s"
            raise EffectRefusedError(reason) from None
        except (OSError, EOFError, ValueError):
            link.close()
            raise EffectRefusedError(f"chain {chain.name} cannot be reached now") from None
        except NodeError as error:
            link.close()
            raise EffectRefusedError(f"chain {chain.name}: {error}") from error
        if not good:
            raise EffectRefusedError(f"chain {chain.name}: {result}")
        return result


class _Link:
    """A connection to one chain's process; made when needed, and again after it was lost."""

    def __init__(self, path: Path, hello: Callable[[], dict[str, Any]]) -> None:
        self._path = path
        self._hello = hello
        self._socket: socket.socket | None = None
        self._reader = FrameReader()
        self._number = 0

    def ask(self, question: dict[str, Any]) -> tuple[bool | None, Any]:
        """An answer. Raises OSError, TimeoutError, EOFError or ValueError when none came."""
        ends_at = time.monotonic() + ANSWER_LIMIT_S
        self._number += 1
        data = frame(pack({**question, NUMBER: self._number}))
        fresh = self._socket is None
        try:
            connection = self._connected(ends_at)
            connection.sendall(data)
            return self._answer(connection, ends_at)
        except TimeoutError:
            raise
        except (OSError, EOFError):
            if fresh:
                raise
        # The process behind an old connection has died; the next one may be there already.
        self.close()
        connection = self._connected(ends_at)
        connection.sendall(data)
        return self._answer(connection, ends_at)

    def tell(self, news: dict[str, Any]) -> None:
        """Say something if there is a connection; over a new one it is said anyway."""
        if self._socket is None:
            return
        try:
            self._socket.settimeout(ANSWER_LIMIT_S)
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
