"""The actor runtime: Thespian, hardened. No other module knows Thespian.

Thespian 4.0.1 gives one process per actor, addresses, timers and reliable notices of a
child's death. As shipped it also listens on 0.0.0.0 and unpickles whatever arrives there,
sleeps inside `send`, leaves orphans and needs a logging process. `harden` mends that
before the first `ActorSystem`:

* actor sockets bind the loopback only, and every frame carries an HMAC of a key made at
  this start, so that nothing unauthenticated is unpickled;
* every process of the system dies with its parent, and the node's process adopts what
  the admin process leaves behind, so that no orphan outlives a crash;
* a frame whose length is negative or absurd costs its connection, not the process;
* a connection whose frame does not arrive in time is closed, and few may be unfinished at once;
* a fatal signal ends the process: Thespian's handlers return, and the fault occurs for ever;
* sends are neither throttled nor described by `str(message)`;
* the death of Thespian's logging process no longer takes the admin with it.

Each of these touches internals: the version is pinned and each has a test in
`tests/integration/test_actor_runtime.py`.
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
import select
import signal
import socket
import time
from datetime import timedelta
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

from fieldbrook.system.process import FATAL_SIGNALS, adopt_orphans, die_with_parent, name_process

log = logging.getLogger(__name__)

Address = ActorAddress

LOOPBACK = "127.0.0.1"
_SHUTDOWN_LIMIT_S = 1.5
_NEVER_THROTTLE = 10**9
_MAC_BYTES = 32
_FRAME_LIMIT = 1 << 20  # the largest of a node is its settings, a few kilobytes
_LENGTH_DIGITS = 20
_FRAME_TIME = timedelta(seconds=5)
_UNFINISHED_LIMIT = 64


class UnauthenticatedFrameError(Exception):
    """A frame on an actor's socket was not made with this start's key."""


class SignedPickle:
    """Pickle behind an HMAC-SHA256: `loads` refuses a frame before unpickling it."""

    __slots__ = ("_key",)

    def __init__(self, key: bytes) -> None:
        self._key = key

    def dumps(self, value: object) -> bytes:
        """32 bytes of HMAC, then the pickle."""
        body = pickle.dumps(value, 5)
        return hmac.digest(self._key, body, "sha256") + body

    def loads(self, frame: bytes) -> Any:
        """The value of a frame made by `dumps` with the same key.

        Raises:
            UnauthenticatedFrameError: anything else; nothing was unpickled.
        """
        mac, body = frame[:_MAC_BYTES], frame[_MAC_BYTES:]
        if not hmac.compare_digest(hmac.digest(self._key, body, "sha256"), mac):
            raise UnauthenticatedFrameError
        return pickle.loads(body)  # noqa: S301 - authenticated just above


def harden(run_dir: Path, key: bytes | None = None) -> None:
    """Patch Thespian for this process and all it will fork. Call once, before the system starts.

    Args:
        run_dir: where Thespian's own error log goes.
        key: the frame key; a fresh random one unless a test needs to know it.
    """
    node_pid = os.getpid()
    os.environ["THESPIAN_BASE_IPADDR"] = LOOPBACK
    os.environ.setdefault("THESPLOG_THRESHOLD", "WARNING")
    _raise_file_limit()
    adopt_orphans()

    import thespian.system.multiprocCommon as multiproc
    import thespian.system.systemBase as system_base
    import thespian.system.systemCommon as system_common
    from thespian.system import transport, utilis
    from thespian.system.transport import IPBase, TCPTransport

    # Not by its environment variable: it looks for a folder for temporary files all the same,
    # and where there is none each line to write is an error of its own.
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
    # 4.0.1 restarts a dead logging process from an attribute of another name.
    multiproc.MultiProcAdmin.logDefs = property(lambda self: self.logdefs)
    multiproc.uncatchable_signals += FATAL_SIGNALS
    _remember_how_children_end(multiproc)
    _refuse_absurd_lengths(TCPTransport)
    _bound_unfinished_frames(TCPTransport)
    _die_with_parent_in_every_actor(TCPTransport, node_pid)
    _keep_logging_local()


def _raise_file_limit() -> None:
    # The supervisor holds three descriptors per child: the usual soft limit of 1,024
    # ends near 340 projects.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _refuse_absurd_lengths(tcp: Any) -> None:
    # A negative length reaches `socket.recv` and ends the process, and without one the buffer
    # grows for ever. What this raises is caught where it is called, and the connection is closed.
    class Buffer(tcp.ReceiveBuffer):  # type: ignore[misc]
        def addMore(self, data: bytes) -> None:  # noqa: N802 - Thespian's
            super().addMore(data)
            if self._size is None and len(self._buf) > _LENGTH_DIGITS:
                raise ValueError("a frame without a length")
            if self._size is not None and not 0 <= self._size <= _FRAME_LIMIT:
                raise ValueError(f"frame of {self._size} bytes")

    tcp.ReceiveBuffer = Buffer


def _bound_unfinished_frames(tcp: Any) -> None:
    # The loop of an actor goes through its unfinished frames at every turn. Thespian waits
    # seven minutes for each, longer when some bytes come, and takes as many as are sent.
    tcp.MAX_INCOMING_SOCKET_PERIOD = _FRAME_TIME
    handle = tcp.TCPTransport._handlePossibleIncoming
    accept = tcp.TCPTransport._acceptNewIncoming

    def handle_in_time(self: Any, incoming: Any, fd: int, *args: Any, **more: Any) -> Any:
        late = incoming._expires.view().expired()
        # What has arrived meanwhile is read: it may be this process that was stopped for a while.
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
            # Not the newest: an actor sends its frame as soon as it is connected.
            oldest = min(unfinished, key=lambda fd: unfinished[fd]._expires.view().remaining())
            unfinished.pop(oldest).close()
        accept(self)

    tcp.TCPTransport._handlePossibleIncoming = handle_in_time
    tcp.TCPTransport._acceptNewIncoming = accept_some


def _remember_how_children_end(multiproc: Any) -> None:
    # Thespian's notice of a death says whose it was, and not how it came about.
    check = multiproc.MultiProcReplicator._checkChildLiveness

    def is_alive(child: Any) -> bool:
        alive: bool = check(child)
        number = getattr(child.childAddr.addressDetails, "addressInstanceNum", None)
        if not alive and number is not None and child.childProc.exitcode is not None:
            _exit_codes[number] = child.childProc.exitcode
            if len(_exit_codes) > _EXIT_CODES_KEPT:  # of those nobody asks about
                del _exit_codes[next(iter(_exit_codes))]
        return alive

    multiproc.MultiProcReplicator._checkChildLiveness = staticmethod(is_alive)


_EXIT_CODES_KEPT = 256
_exit_codes: dict[int, int] = {}
"""Of this process's own children, by the number of the address that it gave them."""


def _die_with_parent_in_every_actor(tcp: Any, node_pid: int) -> None:
    original = tcp.TCPTransport.__init__

    def init(self: Any, init_type: Any, *args: Any) -> None:
        if isinstance(init_type, tcp.TCPEndpoint):  # a fresh admin, logger or actor
            _, assigned, _, admin = init_type.args[:4]
            if assigned is not None and assigned == admin:
                # The admin forks twice: its parent is the node only after adoption.
                limit = time.monotonic() + 3
                while os.getppid() != node_pid and time.monotonic() < limit:
                    time.sleep(0.001)
                name_process("fb-admin")
            else:
                name_process("fb-actor")  # until the actor says what it is
            die_with_parent()
            if assigned is None and os.getppid() in (1, node_pid):
                os._exit(75)  # the parent died before the kernel was asked
        original(self, init_type, *args)

    tcp.TCPTransport.__init__ = init


def _keep_logging_local() -> None:
    # Thespian replaces the root logger of each actor by one that sends records to its
    # logging process (53 to 930 us each, lost when that process dies).
    _LOGGING.update(root=logging.root, manager=logging.Logger.manager)


_LOGGING: dict[str, Any] = {}


def _restore_logging() -> None:
    if _LOGGING:
        logging.root = _LOGGING["root"]
        logging.Logger.root = _LOGGING["root"]
        logging.Logger.manager = _LOGGING["manager"]


def free_port() -> int:
    """A TCP port of the loopback that nobody listens on at this moment."""
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
        """A message of the actor's own protocol."""
        self.unexpected(message, sender)

    def posted(self, message: Any) -> None:
        """A message that another thread of this process handed over with `post`."""
        self.unexpected(message, None)

    def woken(self, payload: Any) -> None:
        """A timer set by `wake_after` ran out."""
        self.unexpected(payload, None)

    def child_exited(self, address: Address) -> None:
        """A child process is gone. Thespian may say so twice for one death."""

    def how_it_ended(self, address: Address) -> str:
        """`SIGSEGV ended it` or `it ended with status 1`, of a child's process; empty when that
        is not known. It can be asked once, with the address that `createActor` gave."""
        number: int = getattr(address.addressDetails, "addressInstanceNum", -1)
        code = _exit_codes.pop(number, None)
        if code is None:
            return ""
        if code >= 0:
            return f"it ended with status {code}"
        try:
            return f"{signal.Signals(-code).name} ended it"
        except ValueError:  # a real-time signal has no name
            return f"signal {-code} ended it"

    def stopping(self) -> None:
        """The actor is asked to exit; what it holds is released here."""

    # What an actor's code may do.

    def wake_after(self, delay_s: float, payload: object) -> None:
        """Have `woken(payload)` called after `delay_s` seconds."""
        self.wakeupAfter(timedelta(seconds=delay_s), payload)

    def stop_child(self, address: Address) -> None:
        """Ask a child to exit after the messages it already has."""
        self.send(address, ActorExitRequest())

    def accept_posts(self) -> None:
        """Let other threads of this process call `post` from now on."""
        self._wake_read, self._wake_write = socket.socketpair()
        self._wake_read.setblocking(False)
        self._wake_write.setblocking(False)
        self._posts_watch = ThespianWatch([self._wake_read.fileno()])

    def post(self, message: object) -> None:
        """Hand a message to the actor's main thread, from any thread."""
        self._posted.append(message)
        assert self._wake_write is not None, "accept_posts comes first"
        with contextlib.suppress(BlockingIOError):  # full: the reader is awake already
            self._wake_write.send(b"!")

    def unexpected(self, message: object, sender: Address | None) -> None:
        """A message no branch knows: a programming error worth a line in the log."""
        log.error("%s: unexpected message %r from %s", type(self).__name__, message, sender)

    def receiveMessage(self, message: Any, sender: Address) -> Any:  # noqa: N802 - Thespian's
        """Thespian's entry; dispatches to the hooks and keeps the watch alive."""
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
                log.error("undeliverable: %r: %s", message.poisonMessage, message.details)
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
            # A port and a boot mark of its own: ActorSystem() silently joins whatever
            # already listens on the admin port.
            capabilities={"Admin Port": free_port(), "Boot": os.getpid()},
            logDefs=None,
        )
        self.root: Address = self._system.createActor(root_class)

    def ask(self, message: object, timeout_s: float, accept: type | tuple[type, ...]) -> Any:
        """Send to the root and wait for an answer of a given type; None when it is late."""
        limit = time.monotonic() + timeout_s
        answer = self._system.ask(self.root, message, timedelta(seconds=timeout_s))
        while answer is not None and not isinstance(answer, accept):
            left = limit - time.monotonic()
            answer = self._system.listen(timedelta(seconds=left)) if left > 0 else None
        return answer

    def tell(self, message: object) -> None:
        """Send to the root without waiting."""
        self._system.tell(self.root, message)

    def shutdown(self) -> None:
        """Ask every actor to exit; returns after at most 1.5 s whether or not they did."""
        self._system.shutdown()


def descendants(pid: int) -> list[int]:
    """Process ids below `pid`, nearest first (Linux). Any of them may end meanwhile."""
    found: list[int] = []
    todo = [pid]
    while todo:
        children = _children(todo.pop())
        found += children
        todo += children
    return found


def _children(pid: int) -> list[int]:
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return []
    found: list[int] = []
    for thread in threads:
        with contextlib.suppress(OSError):
            found += map(int, (thread / "children").read_text().split())
    return found


def is_gone(pid: int) -> bool:
    """Whether a process has ended, collected or (on Linux) not yet."""
    try:
        os.kill(pid, 0)
        stat = Path(f"/proc/{pid}/stat").read_text()
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] in "ZX"


def reap() -> None:
    """Collect every dead child, adopted ones included."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def await_descendants(limit_s: float) -> None:
    """Reap everything below this process as it ends; returns when nothing is left, or in time."""
    limit = time.monotonic() + limit_s
    while time.monotonic() < limit:
        reap()
        if not descendants(os.getpid()):
            return
        time.sleep(0.005)


def kill_descendants(limit_s: float = 2.5) -> int:
    """SIGKILL everything below this process and reap it; returns how many there were."""
    killed = descendants(os.getpid())
    limit = time.monotonic() + limit_s
    while time.monotonic() < limit:
        for pid in descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        reap()
        if not descendants(os.getpid()):
            break
        time.sleep(0.005)
    return len(killed)


class DeathWatch:
    """Tells which of some processes has died, within one poll (Linux pidfd)."""

    def __init__(self, names: dict[int, str]) -> None:
        """`names` maps process ids to what they are called in the log."""
        self._poll = select.poll()
        self._names: dict[int, str] = {}
        for pid, name in names.items():
            fd = os.pidfd_open(pid)
            self._names[fd] = name
            self._poll.register(fd, select.POLLIN)

    def wait(self, timeout_s: float) -> list[str]:
        """Names of the dead, waiting up to `timeout_s` for the first."""
        return [self._names[fd] for fd, _ in self._poll.poll(int(timeout_s * 1000))]
