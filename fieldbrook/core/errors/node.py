"""The node cannot carry out the request (500, 503, 507), or cannot start."""

from __future__ import annotations

from fieldbrook.core.errors.base import NodeError


class UnavailableError(NodeError):
    """The component of the node that would answer is not running. The request was not accepted;
    retry."""

    key = "ServiceUnavailable"
    status = 503
    retry_after_s = 1
    template = "{what}"


class ChainUnavailableError(UnavailableError):
    """The chain's process or its RPC endpoints do not answer, or answer wrongly. The text names
    endpoints only by their hosts, because URLs may contain keys."""

    template = "chain {chain}: {reason}"


class OutcomeUnknownError(UnavailableError):
    """The component of the node that was handling the request died or does not answer; it may or
    may not have committed."""

    number = 2
    template = "{what}, so the outcome is unknown: the change may or may not be committed"


class EventOutcomeUnknownError(OutcomeUnknownError):
    """The project or its worker failed while it handled the event, or does not answer; it may or
    may not have committed. A retry with the same `Idempotency-Key`, or with the same event id of 16
    characters or more, is deduplicated: the event runs once."""

    template = (
        "{what}, so the outcome is unknown; send the event again with the same Idempotency-Key, "
        "or the same event id of 16 characters or more: it runs only once"
    )


class StoreError(NodeError):
    """The store refused a read or a write: full, corrupt or unreadable."""

    key = "DatabaseError"
    number = 2
    template = "{reason}"


class StorageFullError(StoreError):
    """The disk is full, or the store has reached its size limit. The request was not accepted;
    the node checks every second whether there is space again."""

    key = "InsufficientStorage"
    status = 507
    retry_after_s = 1


class BatchTooLargeError(StoreError):
    """The batch is larger than the size limit of the store. Its events may fit one by one."""

    template = "the batch writes {size} bytes; the store has room for {limit_bytes}"


class JournalFullError(StoreError):
    """The journal has no room for the batch: it is larger than a segment, or no segment is free."""


class JournalFailedError(StoreError):
    """The journal could not be written or synced. It is unknown whether the last batches are
    stored. Only the next process that reads the journal can find out, so this process has to
    end."""


class JournalBusyError(StoreError):
    """Another process uses the journal: a worker that is still running or about to end."""


class JournalDamagedError(StoreError):
    """Batches of the journal are damaged or missing. The details are `reason` and, if they are
    known, `file`, `offset` in bytes, `project` and `number` of the batch."""


class OwnedElsewhereError(StoreError):
    """Another host of the cluster owns the project and has its store. Requests are forwarded to
    that host; this answer means that the hosts do not agree yet, so retry."""

    key = "ServiceUnavailable"
    status = 503
    retry_after_s = 1
    template = "host {host} of the cluster owns project {project}"


class EngineUnreachableError(StoreError):
    """The replication engine of this host does not answer. Records in flight may be stored."""


class StreamStalledError(StoreError):
    """A stream of the cluster has no quorum of hosts, or no room. A record in flight may still be
    stored; the next host of the project finds out."""


class OwnerChangedError(StoreError):
    """Another host has taken the project over, so this host cannot commit anything any more."""


class DatabaseUnreachableError(StoreError):
    """The SQL server of the project's database does not answer, or the connection was lost during
    the event. Either nothing was committed, or the commit number on the server decides this
    later; retry."""

    status = 503
    msg = "Database Error"
    retry_after_s = 1


class DatabaseConfigError(NodeError):
    """The project's database configuration cannot be read, or cannot be applied to the existing
    tables."""

    key = "ConfigInitFailed"
    number = 5
    template = "database configuration: {reason}"


class UploadFileFailedError(NodeError):
    number = 3
    template = "{reason}"


class ModuleRefusedError(NodeError):
    """The module cannot run on this node, e.g. because it is not WebAssembly, does not compile or
    does not link."""

    key = "CreateInstanceFailed"
    number = 8
    template = "{reason}"


class InternalError(NodeError):
    """An unexpected failure in another process; the log has the cause."""

    can_be_talk = False


class SettingsError(NodeError):
    """The node cannot start with the value of a setting."""

    key = "InvalidSettings"
    msg = "invalid settings"
    template = "{reason}"


class StatementError(Exception):
    """An applet's SQL statement failed; the text says why.

    This is a failure of the applet, not of the node, so the class is outside the tree. The
    applet gets a code, and the text goes to the applet's log.
    """
