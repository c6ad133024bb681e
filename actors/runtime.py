"""The actor runtime: Thespian, hardened. No other module imports Thespian.

Thespian 4.0.1 provides one process per actor, addresses, timers and notices of a child's
death. By default it also listens on 0.0.0.0 and unpickles all data that arrives there, sleeps
inside `send`, leaves orphan processes and depends on a logging process. `harden` fixes this
before the first `ActorSystem`:

* actor sockets bind the loopback only, and every frame carries an HMAC with a key made at
  this start, so that nothing unauthenticated is unpickled;
* every process of the system dies with its parent, and the node's process adopts the orphans
  of the admin process, so that no process outlives a crash;
* a frame whose length is negative or too large closes its connection instead of ending the
  process;
* a connection whose frame is not complete in 5 s is closed, and at most 64 frames may be
  incomplete at once;
* a fatal signal ends the process; Thespian's own signal handlers return, so that the faulting
  instruction would run for ever;
* sends are not throttled, and no `str(message)` is made for each;
* the death of Thespian's logging process no longer ends the admin process;
* Thespian's lines about its own start and end get into the node's log only at the level DEBUG.

Each fix changes Thespian's internals. Therefore the version is pinned, and each fix has a test
in `tests/integration/test_actor_runtime.py`.
"""

from __future__ import annotations

import collections
import contextlib
import hmac
import logging
import os
import pickle
import resource
import secrets
import signal
import socket
import time
from datetime import timedelta
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from thespian.actors import (
    Actor,
    ActorAddress,
    ActorExitRequest,
    ActorSystem,
    ChildActorExited,
    PoisonMessage,
    ThespianWatch,
    WakeupMessage,
    WatchMessage,
)

from fieldbrook.observability import node_log
from fieldbrook.system.kernel import adopt_orphans, die_with, name_process
from fieldbrook.system.process import FATAL_SIGNALS

log = logging.getLogger(__name__)

Address = ActorAddress

LOOPBACK = "127.0.0.1"
_SHUTDOWN_LIMIT_S = 1.5
_EXIT_LIMIT_S = 1.0
_NEVER_THROTTLE = 10**9
_MAC_BYTES = 32
_FRAME_LIMIT = 1 << 20  # bytes; the largest real message has the settings, a few kilobytes
_LENGTH_DIGITS = 20
_FRAME_TIME = timedelta(seconds=5)
_UNFINISHED_LIMIT = 64


class UnauthenticatedFrameError(Exception):
    """A frame on an actor's socket was not signed with the key of this start."""


class SignedPickle:
    """Pickle with an HMAC-SHA256 in front: `loads` verifies a frame before it unpickles it."""

    __slots__ = ("_key",)

    def __init__(self, key: bytes) -> None:
        self._key = key

    def dumps(self, value: object) -> bytes:
        """Encode a value as 32 bytes of HMAC and then the pickle."""
        body = pickle.dumps(value, 5)
        return hmac.digest(self._key, body, "sha256") + body

    def loads(self, frame: bytes) -> Any:
        """Decode a frame that `dumps` made with the same key.

        Raises:
            UnauthenticatedFrameError: the HMAC does not match; nothing was unpickled.
        """
        mac, body = frame[:_MAC_BYTES], frame[_MAC_BYTES:]
        if not hmac.compare_digest(hmac.digest(self._key, body, "sha256"), mac):
            raise UnauthenticatedFrameError
        return pickle.loads(body)  # noqa: S301 - authenticated just above


def harden(run_dir: Path, key: bytes | None = None) -> None:
    """Patch Thespian in this process and its forks. Call it once, before the system starts.

    Args:
        run_dir: the folder of Thespian's own error log.
        key: the key of the HMAC; random by default, tests may set it.
    """
    node_pid = os.getpid()
    os.environ["THESPIAN_BASE_IPADDR"] = LOOPBACK
    os.environ.setdefault("THESPLOG_THRESHOLD", "WARNING")
    _raise_file_limit()
    adopts = adopt_orphans()

    import thespian.system.multiprocCommon as multiproc
    import thespian.system.systemBase as system_base
    import thespian.system.systemCommon as system_common
    from thespian.system import transport, utilis
    from thespian.system.transport import IPBase, TCPTransport

    # The environment variable would not be enough: Thespian would still look for a temporary
    # folder, and without one it could not write any line of its log.
    utilis._thesplog_file = str(run_dir / "thespian.log")
    utilis._thesplog_old_file = utilis._thesplog_file + ".old"
    signed = SignedPickle(key or secrets.token_bytes(32))
    TCPTransport.serializer = signed
    # Acknowledgements were serialised at import time, before the key existed.
    TCPTransport.ackMsg = TCPTransport.toSendBuffer(TCPTransport.ackPacket, signed.dumps)
    TCPTransport.ackDataErrMsg = TCPTransport.toSendBuffer("ACK+DATAERR", signed.dumps)
    IPBase.IPActorAddress.bindArgs = property(lambda self: (self.sockname,))
    system_common.RATE_THROTTLE = _NEVER_THROTTLE
    system_base.MAX_SYSTEM_SHUTDOWN_DELAY = timedelta(seconds=_SHUTDOWN_LIMIT_S)
    transport.TransmitIntent.identify = lambda self: "intent"
    transport.ReceiveEnvelope.identify = lambda self: "envelope"
    # Thespian 4.0.1 reads `logDefs` to restart a dead logging process, but sets only `logdefs`.
    multiproc.MultiProcAdmin.logDefs = property(lambda self: self.logdefs)
    multiproc.uncatchable_signals += [*FATAL_SIGNALS, signal.SIGALRM]  # `die_with` uses SIGALRM
    if not adopts:
        _start_admin_as_child(multiproc)
    _remember_children(multiproc)
    _refuse_absurd_lengths(TCPTransport)
    _bound_unfinished_frames(TCPTransport)
    _die_with_parent_in_every_actor(TCPTransport, node_pid)
    _keep_logging_local()
    _hide_routine_lines()


def _start_admin_as_child(multiproc: Any) -> None:
    # Thespian detaches the admin process by another fork. The node would lose the process if it did
    # not adopt orphans.
    start = multiproc.startAdmin

    def start_admin(*arguments: Any) -> None:
        fork, new_session = os.fork, os.setsid

        def stay() -> int:
            os.fork, os.setsid = fork, new_session
            return 0

        os.fork, os.setsid = stay, lambda: None
        start(*arguments)

    multiproc.startAdmin = start_admin


def _raise_file_limit() -> None:
    # The supervisor holds three descriptors per child, so the usual soft limit of 1,024 would
    # allow only about 340 projects.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _refuse_absurd_lengths(tcp: Any) -> None:
    # Without this check, a negative length reaches `socket.recv` and ends the process, and a frame
    # without a length fills the memory. Thespian catches the ValueError and closes the connection.
    class Buffer(tcp.ReceiveBuffer):  # type: ignore[misc]
        def addMore(self, data: bytes) -> None:  # noqa: N802 - Thespian's
            super().addMore(data)
            if self._size is None and len(self._buf) > _LENGTH_DIGITS:
                raise ValueError("a frame does not begin with its length")
            if self._size is not None and not 0 <= self._size <= _FRAME_LIMIT:
                raise ValueError(f"a frame of {self._size} bytes exceeds the limit")

    tcp.ReceiveBuffer = Buffer


def _bound_unfinished_frames(tcp: Any) -> None:
    # In each iteration, the loop of an actor checks its incomplete frames. Thespian waits seven
    # minutes for each frame, and longer when some bytes arrive; their number has no limit.
    tcp.MAX_INCOMING_SOCKET_PERIOD = _FRAME_TIME
    handle = tcp.TCPTransport._handlePossibleIncoming
    accept = tcp.TCPTransport._acceptNewIncoming

    def handle_in_time(self: Any, incoming: Any, fd: int, *args: Any, **more: Any) -> Any:
        late = incoming._expires.view().expired()
        # Data that has arrived is read first, because this process itself may have been paused.
        if late and (incoming.socket is None or fd != incoming.socket.fileno()):
            incoming.close()
            return None
        rest = handle(self, incoming, fd, *args, **more)
        if late and rest is incoming:
            incoming.close()
            return None
        return rest

    def accept_some(self: Any) -> None:
        unfinished = self._incomingSockets
        while len(unfinished) >= _UNFINISHED_LIMIT:
            # The oldest is closed, because an actor sends its frame right after it connects.
            oldest = min(unfinished, key=lambda fd: unfinished[fd]._expires.view().remaining())
            unfinished.pop(oldest).close()
        accept(self)

    tcp.TCPTransport._handlePossibleIncoming = handle_in_time
    tcp.TCPTransport._acceptNewIncoming = accept_some


def _remember_children(multiproc: Any) -> None:
    # Thespian's notice of a child's death has no exit code. There is no notice if the child has not
    # connected yet, nor if Thespian finds it dead while it handles the death of another child.
    start = multiproc.MultiProcReplicator._startChildActor

    def start_child(self: Any, address: Any, *args: Any, **more: Any) -> None:
        start(self, address, *args, **more)
        _children[_number(address)] = self._child_procs[-1].childProc

    multiproc.MultiProcReplicator._startChildActor = start_child


_children: dict[int, BaseProcess] = {}
"""The children of this process that were not asked to exit, by `_number`."""


def _number(address: Any) -> int:
    """The instance number in the address of a child."""
    number: int = getattr(address.addressDetails, "addressInstanceNum", -1)
    return number


def describe_exit(code: int | None) -> str:
    """Describe an exit code: `SIGSEGV ended it`, `it ended with status 1`; "" if it is unknown."""
    if code is None:
        return ""
    if code >= 0:
        return f"it ended with status {code}"
    try:
        return f"{signal.Signals(-code).name} ended it"
    except ValueError:  # a real-time signal has no name
        return f"signal {-code} ended it"


def _die_with_parent_in_every_actor(tcp: Any, node_pid: int) -> None:
    original = tcp.TCPTransport.__init__

    def init(self: Any, init_type: Any, *args: Any) -> None:
        if isinstance(init_type, tcp.TCPEndpoint):  # a new admin, logger or actor
            _, assigned, _, admin = init_type.args[:4]
            if assigned is not None and assigned == admin:
                # The admin forks twice: its parent is the node only after adoption.
                limit = time.monotonic() + 3
                while os.getppid() != node_pid and time.monotonic() < limit:
                    time.sleep(0.001)
                name_process("fb-admin")
                node_log.name("admin")
            else:
                name_process("fb-actor")  # until the actor sets its own name
                node_log.name("actor")
            die_with(os.getppid())
            if assigned is None and os.getppid() in (1, node_pid):
                os._exit(75)  # the parent died before `die_with` took effect
        original(self, init_type, *args)

    tcp.TCPTransport.__init__ = init


def _keep_logging_local() -> None:
    # Thespian replaces the root logger of each actor with one that sends records to its
    # logging process. That costs 53 to 930 us per record and loses them when the process dies.
    _LOGGING.update(root=logging.root, manager=logging.Logger.manager)


def _hide_routine_lines() -> None:
    # Only Thespian uses the root logger. Operators need none of its lines, such as `++++ Actor
    # System gen (3, 10) started`.
    def is_wanted(record: logging.LogRecord) -> bool:
        return record.levelno > logging.INFO or logging.root.isEnabledFor(logging.DEBUG)

    logging.root.addFilter(is_wanted)


_LOGGING: dict[str, Any] = {}


def _restore_logging() -> None:
    if _LOGGING:
        logging.root = _LOGGING["root"]
        logging.Logger.root = _LOGGING["root"]
        logging.Logger.manager = _LOGGING["manager"]


def free_port() -> int:
    """A TCP port of the loopback that is free at this moment."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


# ---------------------------------------------------------------- an actor


class NodeActor(Actor):
    """Base of every actor: named hooks instead of Thespian's messages.

    An exception never leaves `receiveMessage`: Thespian would deliver the message a second
    time and forget the watched descriptor. It is logged and the actor lives on.
    """

    def __init__(self) -> None:
        self._posts_watch: Any = None
        self._posted: collections.deque[object] = collections.deque()
        self._wake_write: socket.socket | None = None
        self._wake_read: socket.socket | None = None
        self._logging_restored = False

    # Hooks for the actor's own code.

    def receive(self, message: Any, sender: Address) -> None:
        """Handle a message of the actor's own protocol."""
        self.unexpected(message, sender)

    def posted(self, message: Any) -> None:
        """Handle a message that another thread of this process handed over with `post`."""
        self.unexpected(message, None)

    def woken(self, payload: Any) -> None:
        """Handle the end of a timer that `wake_after` set."""
        self.unexpected(payload, None)

    def child_exited(self, address: Address) -> None:
        """Handle the death of a child process. Thespian may report one death twice or never."""

    def has_exited(self, address: Address) -> bool:
        """Whether the process of a child has ended, with the address that `createActor` returned.

        Call it from time to time, because Thespian does not report every death.
        """
        child = _children.get(_number(address))
        return child is not None and not child.is_alive()

    def exit_code(self, address: Address) -> int | None:
        """The exit code of a child that has ended, negative for a signal; None if it is unknown.

        It can be queried only once.
        """
        child = _children.pop(_number(address), None)
        if child is None:
            return None
        child.join(_EXIT_LIMIT_S)  # a notice may come before the exit code: sockets close earlier
        return child.exitcode

    def kill_child(self, address: Address) -> None:
        """Kill the process of a child, unless it has ended."""
        child = _children.get(_number(address))
        if child is not None and child.is_alive():
            child.kill()

    def stopping(self) -> None:
        """Release the actor's resources, because it was asked to exit."""

    # Methods for the actor's own code.

    def wake_after(self, delay_s: float, payload: object) -> None:
        """Have `woken(payload)` called after `delay_s` seconds."""
        self.wakeupAfter(timedelta(seconds=delay_s), payload)

    def stop_child(self, address: Address) -> None:
        """Ask a child to exit after the messages it already has."""
        self.send(address, ActorExitRequest())

    def accept_posts(self) -> None:
        """Allow other threads of this process to call `post` from now on."""
        self._wake_read, self._wake_write = socket.socketpair()
        self._wake_read.setblocking(False)
        self._wake_write.setblocking(False)
        self._posts_watch = ThespianWatch([self._wake_read.fileno()])

    def post(self, message: object) -> None:
        """Hand a message to the actor's main thread, from any thread."""
        self._posted.append(message)
        assert self._wake_write is not None, "accept_posts comes first"
        with contextlib.suppress(BlockingIOError):  # full: a wake-up is already pending
            self._wake_write.send(b"!")

    def unexpected(self, message: object, sender: Address | None) -> None:
        """Log a message that the actor does not handle: a programming error."""
        log.error("%s: unexpected message %r from %s", type(self).__name__, message, sender)

    def receiveMessage(self, message: Any, sender: Address) -> Any:  # noqa: N802 - Thespian's
        """Thespian's entry point: dispatches to the hooks and keeps the watch alive."""
        if not self._logging_restored:
            _restore_logging()
            self._logging_restored = True
        try:
            self._dispatch(message, sender)
        except Exception:
            log.exception("%s failed on %s", type(self).__name__, type(message).__name__)
        return self._posts_watch

    def _dispatch(self, message: Any, sender: Address) -> None:
        match message:
            case WatchMessage():
                self._drain_posts()
            case WakeupMessage():
                self.woken(message.payload)
            case ChildActorExited():
                self.child_exited(message.childAddress)
            case ActorExitRequest():
                self.stopping()
            case PoisonMessage():
                log.error(
                    "the message %r was not delivered: %s", message.poisonMessage, message.details
                )
            case _:
                self.receive(message, sender)

    def _drain_posts(self) -> None:
        assert self._wake_read is not None
        with contextlib.suppress(BlockingIOError):
            self._wake_read.recv(65536)
        while self._posted:
            self.posted(self._posted.popleft())


# ---------------------------------------------------------------- the system


class ActorTree:
    """A running actor system with one root actor, as the node's process sees it."""

    def __init__(self, root_class: str) -> None:
        """Start the system on a free port and the root actor `package.module.Class` in it."""
        self._system = ActorSystem(
            "multiprocTCPBase",
            # The port is free and the boot mark unique, because ActorSystem() silently joins any
            # system that already listens on the admin port.
            capabilities={"Admin Port": free_port(), "Boot": os.getpid()},
            logDefs=None,
        )
        self.root: Address = self._system.createActor(root_class)

    def ask(self, message: object, timeout_s: float, accept: type | tuple[type, ...]) -> Any:
        """Send to the root actor and wait for an answer of a given type; None on a timeout."""
        limit = time.monotonic() + timeout_s
        answer = self._system.ask(self.root, message, timedelta(seconds=timeout_s))
        while answer is not None and not isinstance(answer, accept):
            left = limit - time.monotonic()
            answer = self._system.listen(timedelta(seconds=left)) if left > 0 else None
        return answer

    def tell(self, message: object) -> None:
        """Send to the root actor without waiting."""
        self._system.tell(self.root, message)

    def shutdown(self) -> None:
        """Ask every actor to exit; returns after at most 1.5 s whether or not they did."""
        self._system.shutdown()
