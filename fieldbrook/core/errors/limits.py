"""A quota, a limit or a rule of the node refuses the request (403, 429)."""

from __future__ import annotations

from fieldbrook.core.errors.base import NodeError


class CronJobLimitError(NodeError):
    """The project already has as many cron jobs as the settings allow."""

    status = 403
    number = 50
    template = "project {project} has {limit} cron jobs, which is the limit; remove one first"


class ContractAbiLimitError(NodeError):
    """The project already has as many ABIs as it may have. Not in the interface document."""

    status = 403
    number = 56
    template = "project {project} has {limit} ABIs, which is the limit; remove one first"


class QuotaExceededError(NodeError):
    """The command would exceed a quota of the account. Nothing was created. Not in the interface
    document."""

    status = 403
    number = 60
    template = (
        "account {account} has {used} {what} and asks for {adding} more; its limit is {limit} "
        "(quota {quota}); remove some, or ask an administrator for a higher quota"
    )


class StorageQuotaError(NodeError):
    """The account that owns the event's project exceeds its quota of stored bytes. The event did
    not run. Not in the interface document."""

    key = "StorageQuotaExceeded"
    status = 403
    number = 61
    template = (
        "account {account} stores more bytes than its quota allows, so its projects take no "
        "events; remove data, or ask an administrator for a higher quota"
    )


class EventTypeNotAllowedError(NodeError):
    """The publisher is not allowed to send events of this type; no handler ran."""

    status = 403
    number = 51
    template = "publisher {pub_id} may not send events of type {event_type}"


class UploadFileSizeLimitError(NodeError):
    status = 403
    number = 4
    template = "the file has {size} bytes; the limit is {limit_bytes}"


class UploadFileMd5UnmatchedError(NodeError):
    status = 403
    number = 5
    template = "the file has the MD5 checksum {actual}, but the request says {stated}"


class UploadFileDiskLimitError(NodeError):
    """Storing the file would leave less free disk space than the setting `disk_reserve_bytes`."""

    status = 403
    number = 6
    template = (
        "the file has {size} bytes; the disk has {free} bytes free, of which {reserve} are "
        "reserved (setting disk_reserve_bytes)"
    )


class UnsupportedFSOperatorError(NodeError):
    """Modules are stored in the node's own data folder, so there is no external download URL."""

    status = 403
    number = 9
    msg = "Unsupported FileSystem Operator"
    template = "modules have no external download URL; use {path} of this node"


class TooManyRequestsError(NodeError):
    """A bounded queue or another limit of the node is full. The request was not accepted; retry."""

    status = 429
    retry_after_s = 1
    template = "{what}"


class TrafficLimitExceededError(NodeError):
    """The project, or the publisher in it, has used up the traffic limit of the current window.
    The event did not run; `Retry-After` says when the next window begins."""

    key = "TrafficLimitExceededFailed"
    status = 429
    number = 14
    template = "{who} has reached the traffic limit of {threshold} events in {duration}"

    def __init__(self, *, retry_after_s: int, **details: str | int) -> None:
        super().__init__(**details, retry_after_s=retry_after_s)
        self.retry_after_s = retry_after_s


class TooManyAttemptsError(TooManyRequestsError):
    """Too many sign-in attempts have failed for this user name or from this address."""

    number = 2
    template = "too many failed attempts to sign in; try again in {wait_s} s"

    def __init__(self, **details: str | int) -> None:
        super().__init__(**details)
        self.retry_after_s = int(details.get("wait_s", 1))
