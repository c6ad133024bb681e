"""The request conflicts with the state of the node (409, 422)."""

from __future__ import annotations

from fieldbrook.core.errors.base import NodeError


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
    template = "account {account} has {projects} projects; force=true deletes them too"


class LastAdministratorError(ConflictError):
    """The last enabled administrator cannot be disabled or deleted."""

    key = "LastAdministrator"
    number = 51
    msg = "Last Administrator"
    template = "account {account} is the last administrator; appoint another one first"


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
    template = "the Idempotency-Key {key} was already used for another event; use a new one"
