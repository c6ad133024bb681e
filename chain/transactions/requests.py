"""The transaction service of one chain.

It answers requests of projects over the chain's socket, reads committed transactions from their
outboxes, and sends the outcome of each transaction to its project as an event.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from fieldbrook.actors.project.chains import (
    CALL,
    COMMITTED,
    HELD,
    HELLO,
    NUMBER,
    PREPARE,
    SETTLED,
    WITHIN_S,
    chain_socket,
)
from fieldbrook.actors.wire import WireEntry, entry_context, frame, pack
from fieldbrook.chain.concurrency import gather_or_cancel
from fieldbrook.chain.errors import RpcError
from fieldbrook.chain.transaction import TransactionRefusedError, warm_up
from fieldbrook.chain.transactions.broadcast.broadcaster import Broadcaster
from fieldbrook.chain.transactions.chain_state import EachRpc
from fieldbrook.chain.transactions.limits import FundsWatch
from fieldbrook.chain.transactions.nonces import Leases, TransactionRequest
from fieldbrook.chain.transactions.outcome_events import OutcomeEvents, Submit
from fieldbrook.core.errors import (
    ChainUnavailableError,
    NodeError,
    StoreError,
)
from fieldbrook.core.settings import Chain
from fieldbrook.gateway.base import essential
from fieldbrook.gateway.chain_client import (
    CANCEL,
    COMMAND,
    PARK,
    READ,
    RELEASE,
    RESUME,
    TARGET,
    read_frame,
)
from fieldbrook.gateway.delivery.outbox import OutboxConsumer
from fieldbrook.gateway.links.project_requests import ask_project
from fieldbrook.observability import fault_points, spans
from fieldbrook.observability.health import STUCK_LEASES, ProcessHealth
from fieldbrook.security.operator_keys import Vault
from fieldbrook.storage.chain.transactions import FINISHED, Transaction, TransactionWriter
from fieldbrook.storage.lmdb.codec import decode_record, encode_record
from fieldbrook.storage.registry.service import RegistryReader

log = logging.getLogger(__name__)

_HASH = re.compile("0x[0-9a-f]{64}", re.ASCII)
_POLL_S = 0.2
_RETRY_S = 1.0
_ACTIVATE_S = 2.0
_PROJECT_LIMIT_S = 5.0
# The part of a project's waiting time that endpoints may use. The rest is for storing the lease and
# sending the answer.
_ANSWERED_PART = 0.9
_SILENT_S = 5.0  # a project that does not answer for longer raises a health condition


class Transactions:
    """The service of a chain's process that sends transactions.

    Args:
        chain: the settings of the chain.
        rpc: the client of the chain.
        rows: the stored transactions of the chain.
        reader: reads the registry.
        vault: decrypts the keys of operators.
        run_dir: the folder of the sockets.
        submit: sends an event to a project; raises a `NodeError` if it is refused.
        activate: starts a project and requests its route.
        restored: returns whether the data was restored from a backup, so that no transaction may
            be sent yet.
        health: receives the conditions for stuck leases, stuck transactions and low funds.
    """

    def __init__(
        self,
        chain: Chain,
        rpc: EachRpc,
        rows: TransactionWriter,
        reader: RegistryReader,
        vault: Vault,
        run_dir: Path,
        submit: Submit,
        activate: Callable[[int], None],
        restored: Callable[[], bool] = lambda: False,
        health: ProcessHealth | None = None,
    ) -> None:
        self.part = f"chain:{chain.id}"
        self._chain = chain
        self._rpc = rpc
        self._rows = rows
        self._reader = reader
        self._path = chain_socket(run_dir, self.part)
        self._activate = activate
        self.leases = Leases(chain, rpc, rows, reader, vault)
        self._health = health or ProcessHealth()
        self.broadcaster = Broadcaster(
            chain, rpc, rows, self.leases, self._finished, restored, self._health
        )
        self._funds = FundsWatch(self.leases.chain_state, rows, self._health)
        self._outcomes = OutcomeEvents(rows, reader, submit)
        self._outbox = OutboxConsumer({self.part: self._deliver}, self.part)
        self._paths: dict[int, str] = {}
        self._activated: dict[int, float] = {}  # project: time of the last activation
        # Projects with open leases and without a connection, with the start of this state.
        self._silent: dict[int, float] = {}
        # The task of each project's newest connection.
        self._connections: dict[int, asyncio.Task[None] | None] = {}
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Start serving projects, and resume unfinished transactions."""
        for row in list(self._rows.unfinished.values()):
            if row.state in FINISHED:
                self._finished(row)
        # Send stored signatures while the libraries for new ones are imported. The import takes a
        # second, and several on a busy machine.
        essential(self._start_task(self.broadcaster.run()))
        await asyncio.to_thread(warm_up)
        self._path.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._serve, str(self._path))
        self._path.chmod(0o600)
        self._start_task(self._funds.run())
        self._start_task(self._poll_silent_projects())

    async def stop(self) -> None:
        """Stop serving projects and sending transactions."""
        self._outbox.stop()
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._path.unlink(missing_ok=True)

    def project_removed(self, project_id: int) -> None:
        """Drop the leases, which are uncommitted transactions, of a project that was removed."""
        self._paths.pop(project_id, None)
        self._start_task(self.leases.settle(project_id, ()))

    def set_route(self, project_id: int, path: str | None) -> None:
        """Set the socket of the worker that runs a project; None if no worker runs it."""
        if path is None:
            self._paths.pop(project_id, None)
        else:
            self._paths[project_id] = path

    def consume_outbox(self, project_id: int, path: str) -> None:
        """Start reading transactions from a project's outbox."""
        self._outbox.consume(project_id, path)

    def _start_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_ended)
        return task

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error(
                "chain %s: a task of the transaction service failed",
                self._chain.name,
                exc_info=task.exception(),
            )

    def _finished(self, row: Transaction) -> None:
        """Start the delivery of a transaction's outcome; see `OutcomeEvents.send`."""
        self._start_task(self._outcomes.send(row))

    # ---------------------------------------------------------------- requests of projects

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        project_id = 0
        task: asyncio.Task[None] | None = asyncio.current_task()
        try:
            while True:
                said = await read_frame(reader)
                if HELLO in said:
                    project_id = said[HELLO]
                    earlier = self._connections.get(project_id)
                    self._connections[project_id] = task
                    if earlier is not None and earlier is not task:
                        earlier.cancel()  # the project no longer waits for an answer on it
                    # From now on, messages on earlier connections of the project are ignored.
                    await self.leases.resolve(project_id, said[COMMITTED], said[HELD])
                    self.broadcaster.wake()
                elif project_id and self._connections.get(project_id) is not task:
                    return
                elif SETTLED in said:
                    await self.leases.settle(project_id, said[SETTLED])
                    self.broadcaster.wake()
                else:
                    good, result = await self._answer(project_id, said, task)
                    writer.write(frame(pack((said[NUMBER], good, result))))
                    await writer.drain()
                    if PREPARE in said:
                        fault_points.hit("chain.request_answered")
        except (EOFError, OSError, asyncio.CancelledError):
            pass
        except StoreError as error:
            log.error("chain %s: %s", self._chain.name, error)
        finally:
            if self._connections.get(project_id) is task:
                del self._connections[project_id]
            writer.close()

    async def _answer(
        self, project_id: int, said: dict[str, Any], task: asyncio.Task[None] | None
    ) -> tuple[bool | None, Any]:
        within_s = _ANSWERED_PART * said.get(WITHIN_S, 0.0)
        try:
            if PREPARE in said:
                wanted = TransactionRequest(
                    said[PREPARE],
                    said["operator"],
                    said["request"],
                    said["event_id"],
                    said["event_type"],
                    said["api"],
                    within_s,
                )
                fault_points.hit("chain.request_received")
                row = await self.leases.prepare(
                    project_id,
                    wanted,
                    said["held"],
                    lambda: self._connections.get(project_id) is task,
                )
                return True, (row.last.hash, row.name, encode_record(row))
            if CALL in said:
                return True, await self.leases.call(said[CALL], within_s)
            if READ in said:
                return True, await self._read_tx(said[READ])
            return True, await self._run_command(said[COMMAND], said[TARGET])
        except ChainUnavailableError as error:
            # The project itself puts the chain's name before the reason.
            return None, str(error.details["reason"] if project_id else error)
        except (TransactionRefusedError, NodeError, RpcError) as error:
            return False, str(error)

    async def _read_tx(self, hash_: str) -> bytes:
        """Return a transaction and its receipt from the chain, as JSON."""
        if not _HASH.fullmatch(hash_):
            reason = f"hash: {hash_[:80]!r} is not 64 hexadecimal digits, with or without 0x"
            raise TransactionRefusedError(reason)
        transaction, receipt = await gather_or_cancel(
            self._rpc.call("eth_getTransactionByHash", [hash_]),
            self._rpc.call("eth_getTransactionReceipt", [hash_]),
        )
        return json.dumps({"transaction": transaction, "receipt": receipt}).encode()

    async def _run_command(self, command: str, target: int) -> str:
        """Execute a management command and return the command's name.

        Raises:
            TransactionRefusedError: the command is not possible in the current state.
        """
        if command in (PARK, RESUME):
            self._rows.park(command == PARK)
            self.broadcaster.wake()
            return command
        if command == RELEASE:
            await self._release(target)
        elif command == CANCEL:
            await self.broadcaster.cancel(target)
        else:
            await self.broadcaster.retry(target)
        return command

    async def _release(self, project_id: int) -> None:
        """Drop the leases of a project that cannot report which of them it has committed.

        None of them was broadcast, because only committed transactions are broadcast.

        Raises:
            TransactionRefusedError: the project is connected, or has no leases.
        """
        if project_id in self._connections:
            raise TransactionRefusedError(
                "the project is running, so its leases end with its current batch"
            )
        if project_id not in self.leases.projects():
            raise TransactionRefusedError("the project has no leases")
        log.warning("an administrator drops the leases of project %d", project_id)
        await self.leases.settle(project_id, ())

    # ---------------------------------------------------------------- leases of silent projects

    async def _poll_silent_projects(self) -> None:
        """Ask projects with open leases but no connection which leases they have committed.

        A connection is lost when this process or the project's process dies. Until the project
        answers, its leases block the accounts for other projects.
        """
        while True:
            silent = self.leases.projects() - set(self._connections)
            self._report_silent(silent)
            for project_id in silent:
                try:
                    await self._query_project(project_id)
                except (OSError, EOFError, ValueError, TimeoutError, StoreError) as error:
                    log.info(
                        "project %d does not report which leases it has committed: %s",
                        project_id,
                        str(error) or "timeout",
                    )
            await asyncio.sleep(_POLL_S if self.leases.projects() else _RETRY_S)

    def _report_silent(self, projects: set[int]) -> None:
        """Raise or clear the health condition for projects that are silent for `_SILENT_S`."""
        now = asyncio.get_running_loop().time()
        self._silent = {project: self._silent.get(project, now) for project in projects}
        long = [p for p, since in self._silent.items() if now - since > _SILENT_S]
        if not long:
            self._health.clear(STUCK_LEASES)
            return
        names = [self._name_of(project_id) for project_id in long]
        self._health.raise_(
            STUCK_LEASES,
            f"project {', '.join(names)}; if its store is lost: "
            f"fieldbrook tx release {self._chain.name} {names[0]}",
        )

    def _name_of(self, project_id: int) -> str:
        with contextlib.suppress(StoreError):
            project = self._reader.project(project_id)
            if project is not None:
                return project.name
        return str(project_id)

    async def _query_project(self, project_id: int) -> None:
        path = self._paths.get(project_id)
        if path is None:
            if self._reader.project(project_id) is None:  # removed while this process was down
                await self.leases.settle(project_id, ())
                return
            now = asyncio.get_running_loop().time()
            if now - self._activated.get(project_id, -_ACTIVATE_S) >= _ACTIVATE_S:
                self._activated[project_id] = now
                self._activate(project_id)
            return
        self._activated.pop(project_id, None)
        async with asyncio.timeout(_PROJECT_LIMIT_S):
            reader, writer = await asyncio.open_unix_connection(path)
            try:
                said = await ask_project(reader, writer, project_id, {HELLO: self.part})
            except EOFError:
                self._paths.pop(project_id, None)  # the project has left this worker
                raise
            finally:
                writer.close()
        if said is not None and project_id not in self._connections:
            await self.leases.resolve(project_id, said[COMMITTED], said[HELD])
            self.broadcaster.wake()

    # ---------------------------------------------------------------- outboxes

    async def _deliver(self, project_id: int, entry: WireEntry) -> None:
        """Accept a transaction from a project's outbox, after its event was committed."""
        row = decode_record(entry[3], Transaction)
        if row.project_id != project_id:
            raise StoreError(
                reason=f"transaction {row.name} belongs to project {row.project_id}, "
                f"but was in the outbox of project {project_id}"
            )
        fault_points.hit("chain.outbox_entry_received")
        if spans.here is not None and (context := entry_context(entry)):
            self.broadcaster.spans.place(row.transaction_id, context)
        await self.leases.accept(row)
        fault_points.hit("chain.outbox_entry_stored")
        self.broadcaster.wake()
