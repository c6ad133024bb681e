"""The tree of errors: every failure that the node expects.

The raiser knows the cause, so the class carries the answer: the stable `key` and the
numeric `code` that clients match on, the HTTP status, a short `msg`, and whether it may be
shown to an end user. The gateway only renders it (`body`). Between processes a failure travels
as the value `(class name, details)`; `from_wire` makes the error again on the other side.

Source: interface document 1.3 and section 9 (the later generation's catalogue wins).
"""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

SOURCE = "srv-applet-mgr"


class FieldError:
    """One entry of `fields` in a validation failure: the parameter, its location, the reason."""

    __slots__ = ("field", "location", "msg")

    def __init__(self, field: str, msg: str, location: str) -> None:
        self.field = field
        self.msg = msg
        self.location = location

    def as_json(self) -> dict[str, str]:
        """Shape: `{"field": str, "msg": str, "in": "path"|"query"|"header"|"body"}`."""
        return {"field": self.field, "msg": self.msg, "in": self.location}


class NodeError(Exception):
    """Base class of all expected failures."""

    key: ClassVar[str] = "InternalServerError"  # clients match on it; never reworded
    status: ClassVar[int] = 500
    number: ClassVar[int] = 1
    msg: ClassVar[str] = "internal error"
    can_be_talk: ClassVar[bool] = False  # other classes: True unless they say otherwise
    retry_after_s: int | None = None
    template: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        if NodeError in cls.__bases__ and "can_be_talk" not in vars(cls):
            cls.can_be_talk = True

    def __init__(self, **details: str | int) -> None:
        super().__init__(self.template.format(**details) or self.msg)
        self.details = details

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), **self.details), ()

    @property
    def desc(self) -> str:
        """The detailed description: the template, filled in with names and values."""
        return self.template.format(**self.details)

    @property
    def code(self) -> int:
        """`status * 1000000 + 999000 + number`, as the catalogue numbers them."""
        return self.status * 1_000_000 + 999_000 + self.number

    def fields(self) -> list[FieldError] | None:
        """The offending parameters, for validation failures only."""
        return None

    def text(self) -> str:
        """One line, as it stands inside an event's result (interface document, 1.3)."""
        talk = "!" if self.can_be_talk else ""
        fields = "".join(f"<{f.field}:{f.msg}>" for f in self.fields() or ())
        desc = f" {self.desc}" if self.desc else ""
        return f"[]@StatusErr[{self.key}][{self.code}][{self.msg}]{talk}{fields}{desc}"

    def body(self, version: str) -> dict[str, Any]:
        """The 8-key error body of the interface."""
        fields = self.fields()
        return {
            "key": self.key,
            "code": self.code,
            "msg": self.msg,
            "desc": self.desc,
            "canBeTalk": self.can_be_talk,
            "id": "",
            "sources": [f"{SOURCE}@{version}"],
            "fields": None if fields is None else [f.as_json() for f in fields],
        }


# ---------------------------------------------------------------- what the client sent


class BadRequestError(NodeError):
    """Parameters are missing or malformed; `fields` names them, at most the first 100."""

    key = "badRequest"
    status = 400
    msg = "invalid parameters"
    fields_limit: ClassVar[int] = 100
    can_be_talk = False

    def __init__(self, *fields: FieldError, desc: str = "") -> None:
        super().__init__()
        self._fields = list(fields[: self.fields_limit])
        self._desc = desc

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), *self._fields, desc=self._desc), ()

    @property
    def desc(self) -> str:
        """Empty unless the request body as a whole is invalid."""
        return self._desc

    @property
    def code(self) -> int:
        """Validation failures have no catalogue number (interface document, 1.3)."""
        return 400_000_000

    def fields(self) -> list[FieldError] | None:
        """One entry per offending parameter."""
        return self._fields

    def __str__(self) -> str:
        parts = [f"{f.field}: {f.msg}" for f in self._fields]
        return "; ".join([*([self._desc] if self._desc else []), *parts]) or self.msg


class MalformedMessageError(BadRequestError):
    """The body of an event is not a data message."""


class PayloadTooLargeError(NodeError):
    key = "RequestEntityTooLarge"
    status = 413
    msg = "Request Entity Too Large"
    template = "body of {size} bytes; the limit is {limit_bytes}"


class EffectsTooLargeError(NodeError):
    """An event's handlers write more than the project's store could take even if it were empty.
    Nothing was kept, and a retry does not help."""

    key = "EffectsTooLarge"
    status = 413
    number = 2
    msg = "Effects Too Large"
    template = "its handlers write {size} bytes; a project's store takes {limit_bytes} at most"


class InvalidCronExpressionsError(NodeError):
    """The schedule of a cron job is not a valid cron expression."""

    key = "InvalidCronExpressions"
    status = 400
    number = 5
    msg = "Invalid Cron Expressions"
    template = "{expression}: {reason}"


class InvalidMonitorIDsError(NodeError):
    """Some of the ids do not belong to monitors of that kind in the project; nothing was
    changed."""

    status = 400
    template = "{ids}"


class InvalidContractLogIDsError(InvalidMonitorIDsError):
    key = "InvalidContractLogIDs"
    number = 9
    msg = "Invalid Contract Log IDs"


class InvalidChainTxIDsError(InvalidMonitorIDsError):
    key = "InvalidChainTxIDs"
    number = 10
    msg = "Invalid Chain Tx IDs"


class InvalidChainHeightIDsError(InvalidMonitorIDsError):
    key = "InvalidChainHeightIDs"
    number = 11
    msg = "Invalid Chain Height IDs"


class InvalidPrivateKeyError(NodeError):
    """The text is not a valid private key. Never carries the key."""

    key = "InvalidPrivateKey"
    status = 400
    number = 6
    msg = "Invalid Private Key"
    template = "{reason}"


# ---------------------------------------------------------------- who the client is


class AuthorizationError(NodeError):
    """The caller is not authenticated, or is not the identity that the request needs."""

    key = "Unauthorized"
    status = 401
    msg = "unauthorized"
    can_be_talk = False
    template = "{reason}"


class InvalidTokenError(AuthorizationError):
    """A token is absent, malformed, expired or not signed by this node."""

    key = "InvalidToken"
    number = 2
    msg = "Invalid Token"
    can_be_talk = True


class InvalidAuthAccountIDError(AuthorizationError):
    key = "InvalidAuthAccountID"
    number = 3
    msg = "Invalid Auth Account ID"
    can_be_talk = True


class InvalidAuthValueError(AuthorizationError):
    """The token is genuine, but of a kind that this request does not accept."""

    key = "InvalidAuthValue"
    number = 2
    msg = "Invalid Auth Value"
    can_be_talk = True


class InvalidAccessKeyError(AuthorizationError):
    """The access key is malformed, or does not match the stored key. Never carries the key."""

    key = "InvalidAccessKey"
    number = 18
    msg = "Invalid Account Access Key"
    can_be_talk = True


class OccupiedOperatorError(NodeError):
    """The operator is in use and cannot be removed."""

    key = "OccupiedOperator"
    status = 403
    number = 8
    msg = "Occupied Operator"
    template = "operator {operator}: {reason}"


class AccessKeyExpiredError(NodeError):
    key = "AccessKeyExpired"
    status = 403
    number = 10
    msg = "Account Access Key Expired"
    template = "{name}"


class AccessKeyPermissionDeniedError(NodeError):
    """The access key lacks the permission on the group that the operation belongs to."""

    key = "AccessKeyPermissionDenied"
    status = 403
    number = 11
    msg = "Access Key Permission Denied"
    template = "{operation} needs {needed} on {group}; the key is granted {granted}"


class PublisherTokenError(AuthorizationError):
    """The token in the header is not the token of the publisher in the header. Never carries the
    token."""

    key = "InvalidEventToken"
    number = 15
    msg = "Invalid Event Token"
    can_be_talk = True
    template = "publisher {pub_id} of project {project}: {reason}"


class InvalidAuthPublisherIDError(AuthorizationError):
    """The token is genuine, but the request needs the token of a publisher."""

    key = "InvalidAuthPublisherID"
    number = 12
    msg = "Invalid Auth Publisher ID"
    can_be_talk = True


class InvalidEventChannelError(AuthorizationError):
    """The channel belongs to another project than the token."""

    key = "InvalidEventChannel"
    number = 14
    msg = "Invalid Event Channel"
    can_be_talk = True
    template = "publisher {pub_id} does not belong to channel {channel}"


class NoProjectPermissionError(NodeError):
    key = "NoProjectPermission"
    status = 401
    number = 4
    msg = "No Project Permission"
    template = "{name}"


class NoOperatorPermissionError(NodeError):
    """The operator belongs to another account than the project."""

    key = "NoOperatorPermission"
    status = 401
    number = 5
    msg = "No Operator Permission"
    template = "operator {operator} is not of the project's account"


class NoAdminPermissionError(NodeError):
    key = "NoAdminPermission"
    status = 401
    number = 6
    msg = "No Admin Permission"
    template = "{reason}"


class InvalidOldPasswordError(NodeError):
    """The old password is wrong."""

    key = "InvalidOldPassword"
    status = 401
    number = 7
    msg = "Invalid Old Password"


class InvalidNewPasswordError(NodeError):
    """The new password is the same as the old one."""

    key = "InvalidNewPassword"
    status = 401
    number = 8
    msg = "Invalid New Password"


class InvalidPasswordError(NodeError):
    """The password is wrong."""

    key = "InvalidPassword"
    status = 401
    number = 9
    msg = "Invalid Password"


class InvalidEthLoginSignatureError(NodeError):
    key = "InvalidEthLoginSignature"
    status = 401
    number = 10
    msg = "Invalid Siwe Signature"
    template = "{reason}"


class InvalidEthLoginMessageError(NodeError):
    key = "InvalidEthLoginMessage"
    status = 401
    number = 11
    msg = "Invalid Siwe Message"
    template = "{reason}"


class WhiteListForbiddenError(NodeError):
    """This wallet may not sign in: it is not in the setting `wallet_whitelist`, or that is empty
    and the wallet has no account."""

    key = "WhiteListForbidden"
    status = 403
    number = 3
    msg = "White List Forbidden"
    template = "address {address}"


class DisabledAccountError(NodeError):
    key = "DisabledAccount"
    status = 403
    number = 2
    msg = "Disabled Account"
    template = "account {account}"


class CronJobLimitError(NodeError):
    """The project already has as many cron jobs as the settings allow."""

    key = "CronJobLimit"
    status = 403
    number = 50
    msg = "Cron Job Limit"
    template = "project {project} has {limit} cron jobs, the most it may have"


class ContractAbiLimitError(NodeError):
    """The project already has as many ABIs as it may have. Not in the interface document."""

    key = "ContractAbiLimit"
    status = 403
    number = 56
    msg = "Contract Abi Limit"
    template = "project {project} has {limit} ABIs, the most it may have"


class QuotaExceededError(NodeError):
    """The command would exceed a quota of the account. Nothing was created. Not in the interface
    document."""

    key = "QuotaExceeded"
    status = 403
    number = 60
    msg = "Quota Exceeded"
    template = (
        "account {account} may have {limit} {what}, it has {used} and {adding} more are asked for "
        "(quota {quota}); remove some, or ask an administrator for a higher quota"
    )


class StorageQuotaError(NodeError):
    """The account that owns the event's project exceeds its quota of stored bytes. The event did
    not run. Not in the interface document."""

    key = "StorageQuotaExceeded"
    status = 403
    number = 61
    msg = "Storage Quota Exceeded"
    template = "account {account} has more bytes stored than its quota allows: no event is taken"


class EventTypeNotAllowedError(NodeError):
    """The publisher is not allowed to send events of this type; no handler ran."""

    key = "EventTypeNotAllowed"
    status = 403
    number = 51
    msg = "Event Type Not Allowed"
    template = "publisher {pub_id} may not send events of type {event_type}"


class UploadFileSizeLimitError(NodeError):
    key = "UploadFileSizeLimit"
    status = 403
    number = 4
    msg = "Upload File Size Limit"
    template = "file of {size} bytes; the limit is {limit_bytes}"


class UploadFileMd5UnmatchedError(NodeError):
    key = "UploadFileMd5Unmatched"
    status = 403
    number = 5
    msg = "Upload File Md5 Unmatched"
    template = "the file's md5 is {actual}, the request says {stated}"


class UploadFileDiskLimitError(NodeError):
    """Storing the file would leave less free disk space than the setting `disk_reserve_bytes`."""

    key = "UploadFileDiskLimit"
    status = 403
    number = 6
    msg = "Upload File Disk Limit"
    template = "file of {size} bytes; {free} are free, of which {reserve} stay so"


class UnsupportedFSOperatorError(NodeError):
    """Modules are stored in the node's own data folder, so there is no external download URL."""

    key = "UnsupportedFSOperator"
    status = 403
    number = 9
    msg = "Unsupported FileSystem Operator"
    template = "download {path} instead"


# ---------------------------------------------------------------- what does not exist


class NotFoundError(NodeError):
    key = "NotFound"
    status = 404
    number = 1
    msg = "NotFound"
    template = "{what}"


class ProjectNotFoundError(NotFoundError):
    key = "ProjectNotFound"
    number = 2
    msg = "Project Not Found"
    template = "project {project}"


class ConfigNotFoundError(NotFoundError):
    key = "ConfigNotFound"
    number = 3
    msg = "Config Not Found"
    template = "{kind} of project {project}"


class ResourceNotFoundError(NotFoundError):
    key = "ResourceNotFound"
    number = 4
    msg = "Resource Not Found"
    template = "resource {resource}"


class AppletNotFoundError(NotFoundError):
    key = "AppletNotFound"
    number = 5
    msg = "Applet Not Found"
    template = "applet {applet}"


class InstanceNotFoundError(NotFoundError):
    key = "InstanceNotFound"
    number = 6
    msg = "Instance Not Found"
    template = "instance {instance}"


class StrategyNotFoundError(NotFoundError):
    key = "StrategyNotFound"
    number = 7
    msg = "Strategy Not Found"
    template = "{what}"


class PublisherNotFoundError(NotFoundError):
    key = "PublisherNotFound"
    number = 8
    msg = "Publisher Not Found"
    template = "publisher {pub_id}"


class AccountIdentityNotFoundError(NotFoundError):
    key = "AccountIdentityNotFound"
    number = 9
    msg = "Account Identity Not Found"
    template = "{username}"


class AccountNotFoundError(NotFoundError):
    key = "AccountNotFound"
    number = 17
    msg = "Account Not Found"
    template = "account {account}"


class ResourcePermNotFoundError(NotFoundError):
    """The caller owns no such resource; another account may own one."""

    key = "ResourcePermNotFound"
    number = 10
    msg = "Resource Perm Not Found"
    template = "resource {resource}"


class AppletVersionNotFoundError(NotFoundError):
    """The applet never had that version, or the version is no longer kept."""

    key = "AppletVersionNotFound"
    number = 50
    msg = "Applet Version Not Found"
    template = "applet {applet} has no version {version}"


class CronJobNotFoundError(NotFoundError):
    key = "CronJobNotFound"
    number = 11
    msg = "Cron Job Not Found"
    template = "cron job {cron_job}"


class BlockchainNotFoundError(NotFoundError):
    """The setting `chains` has no such chain."""

    key = "BlockchainNotFound"
    number = 13
    msg = "Blockchain Not Found"
    template = "chain {chain}"


class ContractLogNotFoundError(NotFoundError):
    key = "ContractLogNotFound"
    number = 14
    msg = "Contract Log Not Found"
    template = "contract log monitor {monitor}"


class ChainTxNotFoundError(NotFoundError):
    key = "ChainTxNotFound"
    number = 15
    msg = "Chain Tx Not Found"
    template = "chain transaction monitor {monitor}"


class ChainHeightNotFoundError(NotFoundError):
    key = "ChainHeightNotFound"
    number = 16
    msg = "Chain Height Not Found"
    template = "chain height monitor {monitor}"


class ContractAbiNotFoundError(NotFoundError):
    """The project has no such ABI. Not in the interface document."""

    key = "ContractAbiNotFound"
    number = 56
    msg = "Contract Abi Not Found"
    template = "ABI {abi}"


class DeadLetterNotFoundError(NotFoundError):
    """The project has no such dead letter. Not in the interface document."""

    key = "DeadLetterNotFound"
    number = 52
    msg = "Dead Letter Not Found"
    template = "dead letter {letter}"


class TransactionNotFoundError(NotFoundError):
    """There is no such transaction. Not in the interface document."""

    key = "TransactionNotFound"
    number = 53
    msg = "Transaction Not Found"
    template = "transaction {transaction}"


class TrafficLimitNotFoundError(NotFoundError):
    key = "TrafficLimitNotFound"
    number = 20
    msg = "Traffic Limit Not Found"
    template = "traffic limit {traffic_limit}"


class OperatorNotFoundError(NotFoundError):
    key = "OperatorNotFound"
    number = 19
    msg = "Operator Not Found"


class ProjectOperatorNotFoundError(NotFoundError):
    key = "ProjectOperatorNotFound"
    number = 21
    msg = "Project Operator relationship Not Found"


class AccessKeyNotFoundError(NotFoundError):
    key = "AccessKeyNotFound"
    number = 22
    msg = "Account Key Not Found"


# ---------------------------------------------------------------- what stands in the way


class ConflictError(NodeError):
    key = "Conflict"
    status = 409
    number = 1
    msg = "Conflict conflict error"
    template = "{what}"


class TransactionRefusedByChainError(ConflictError):
    """The chain's process refused a command on a transaction, e.g. because the transaction is
    already final. Not in the interface document."""

    key = "TransactionRefused"
    number = 52
    msg = "Transaction Refused"
    template = "{reason}"


class ProjectNameConflictError(ConflictError):
    key = "ProjectNameConflict"
    number = 2
    msg = "Project Name Conflict"


class StrategyConflictError(ConflictError):
    key = "StrategyConflict"
    number = 5
    msg = "Strategy Conflict"
    template = "[prj: {project}] [app: {applet}] [type: {event_type}] [hdl: {handler}]"


class PublisherConflictError(ConflictError):
    key = "PublisherConflict"
    number = 7
    msg = "Publisher Conflict"


class AppletNameConflictError(ConflictError):
    key = "AppletNameConflict"
    number = 9
    msg = "Applet Name Conflict"


class AccountIdentityConflictError(ConflictError):
    key = "AccountIdentityConflict"
    number = 14
    msg = "Account Identity Conflict"


class AccountInUseError(ConflictError):
    """The account has projects, so it is deleted only with `force=true`."""

    key = "AccountInUse"
    number = 50
    msg = "Account In Use"
    template = "account {account} has {projects} projects; force=true removes them too"


class LastAdministratorError(ConflictError):
    """The last enabled administrator cannot be disabled or deleted."""

    key = "LastAdministrator"
    number = 51
    msg = "Last Administrator"
    template = "account {account} is the last administrator"


class OperatorConflictError(ConflictError):
    key = "OperatorConflict"
    number = 17
    msg = "Operator Conflict"


class ProjectOperatorConflictError(ConflictError):
    key = "ProjectOperatorConflict"
    number = 19
    msg = "Project Operator relationship Conflict"


class AccessKeyNameConflictError(ConflictError):
    key = "AccessKeyNameConflict"
    number = 20
    msg = "Access Key Name Conflict"


class CronJobConflictError(ConflictError):
    key = "CronJobConflict"
    number = 10
    msg = "Cron Job Conflict"


class ContractLogConflictError(ConflictError):
    key = "ContractLogConflict"
    number = 11
    msg = "Contract Log Conflict"


class ChainTxConflictError(ConflictError):
    key = "ChainTxConflict"
    number = 12
    msg = "Chain Tx Conflict"


class ContractAbiConflictError(ConflictError):
    """The project already has an ABI with that name. Not in the interface document."""

    key = "ContractAbiConflict"
    number = 56
    msg = "Contract Abi Conflict"


class ChainHeightConflictError(ConflictError):
    key = "ChainHeightConflict"
    number = 13
    msg = "Chain Height Conflict"


class TrafficLimitConflictError(ConflictError):
    key = "TrafficLimitConflict"
    number = 18
    msg = "Traffic Limit Conflict"


class IdempotencyKeyReusedError(NodeError):
    """The `Idempotency-Key` was already used for an event with another type or payload. This
    event did not run. Not in the interface document."""

    key = "IdempotencyKeyReused"
    status = 422
    msg = "Idempotency Key Reused"
    template = "the Idempotency-Key {key} was sent with another event before; use a new one"


# ---------------------------------------------------------------- what the node cannot do now


class TooManyRequestsError(NodeError):
    """A bounded queue or another limit of the node is full. The request was not accepted; retry."""

    key = "TooManyRequests"
    status = 429
    msg = "Too Many Requests"
    retry_after_s = 1
    template = "{what}"


class TrafficLimitExceededError(NodeError):
    """The project, or the publisher in it, has used up the traffic limit of the current window.
    The event did not run; `Retry-After` says when the next window begins."""

    key = "TrafficLimitExceededFailed"
    status = 429
    number = 14
    msg = "Traffic Limit Exceeded Failed"
    template = "{who}: {threshold} events in {duration} have been taken"

    def __init__(self, *, retry_after_s: int, **details: str | int) -> None:
        super().__init__(**details, retry_after_s=retry_after_s)
        self.retry_after_s = retry_after_s


class TooManyAttemptsError(TooManyRequestsError):
    """Too many sign-in attempts have failed for this user name or from this address."""

    key = "TooManyAttempts"
    number = 2
    msg = "Too Many Attempts"
    template = "try again in {wait_s} s"

    def __init__(self, **details: str | int) -> None:
        super().__init__(**details)
        self.retry_after_s = int(details.get("wait_s", 1))


class UnavailableError(NodeError):
    """The part of the node that would answer is not running. The request was not accepted;
    retry."""

    key = "ServiceUnavailable"
    status = 503
    msg = "Service Unavailable"
    retry_after_s = 1
    template = "{what}"


class ChainUnavailableError(UnavailableError):
    """The chain's process or its RPC endpoints do not answer, or not as they should. Names
    endpoints by their hosts only, because URLs may hold keys."""

    template = "chain {chain}: {reason}"


class OutcomeUnknownError(UnavailableError):
    """The part of the node that was answering died or does not answer; it may or may not have
    committed."""

    key = "OutcomeUnknown"
    number = 2
    msg = "Outcome Unknown"
    template = "{what}: outcome unknown"


class EventOutcomeUnknownError(OutcomeUnknownError):
    """The project's process died while it handled the event, or does not answer; it may or may
    not have committed. A retry with the same `Idempotency-Key`, or with the same event id of 16
    characters or more, is deduplicated: the event runs once."""

    template = (
        "{what}: outcome unknown; sent again with the same Idempotency-Key, or the same event id "
        "of 16 characters or more, it runs once"
    )


class StoreError(NodeError):
    """The store refused a read or a write: full, corrupt or unreadable."""

    key = "DatabaseError"
    number = 2
    msg = "Database Error"
    template = "{reason}"


class StorageFullError(StoreError):
    """The disk is full, or the store has reached its size limit. The request was not accepted;
    the node checks every second whether there is space again."""

    key = "InsufficientStorage"
    status = 507
    msg = "Insufficient Storage"
    retry_after_s = 1


class BatchTooLargeError(StoreError):
    """The batch is larger than the size limit of the store. Its events may fit one by one."""

    template = "{size} bytes in one batch; the size limit of the store leaves {limit_bytes}"


class DatabaseUnreachableError(StoreError):
    """The SQL server of the project's database does not answer, or the connection was lost during
    the event. Either nothing was committed, or the commit number on the server decides this
    later; retry."""

    key = "DatabaseUnreachable"
    status = 503
    retry_after_s = 1


class DatabaseConfigError(NodeError):
    """The project's database configuration cannot be read, or cannot be applied to the existing
    tables."""

    key = "ConfigInitFailed"
    number = 5
    msg = "Config Init Failed"
    template = "database configuration: {reason}"


class UploadFileFailedError(NodeError):
    key = "UploadFileFailed"
    number = 3
    msg = "Upload File Failed"
    template = "{reason}"


class ModuleRefusedError(NodeError):
    """The module cannot run on this node, e.g. because it is not WebAssembly, does not compile or
    does not link."""

    key = "CreateInstanceFailed"
    number = 8
    msg = "Create Instance Failed"
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


def _tree(cls: type[NodeError]) -> list[type[NodeError]]:
    return [cls, *(sub for direct in cls.__subclasses__() for sub in _tree(direct))]


_BY_NAME: dict[str, type[NodeError]] = {cls.__name__: cls for cls in _tree(NodeError)}


def to_wire(error: NodeError) -> tuple[str, dict[str, str | int]]:
    """Convert an error to a value that msgpack can encode: the class's name and its details."""
    return type(error).__name__, error.details


def from_wire(name: str, details: dict[str, str | int]) -> NodeError:
    """Make the error that `to_wire` encoded; an unknown name becomes an `InternalError`."""
    cls = _BY_NAME.get(name)
    return InternalError() if cls is None else cls(**details)
