"""The request conflicts with the state of the node (409, 422)."""

from __future__ import annotations

from fieldbrook.core.errors.base import NodeError


class ConflictError(NodeError):
    status = 409
    number = 1
    msg = "Conflict conflict error"
    template = "{what}"


class TransactionRefusedByChainError(ConflictError):
    """The chain's process refused a command on a transaction, e.g. because the transaction is
    already final. Not in the interface document."""

    key = "TransactionRefused"
    number = 52
    template = "{reason}"


class HostChangeRefusedError(ConflictError):
    """The cluster refuses a change of its list of hosts. Not in the interface document."""

    key = "HostChangeRefused"
    number = 57
    template = "{reason}"


class ProjectNameConflictError(ConflictError):
    number = 2


class StrategyConflictError(ConflictError):
    number = 5
    template = "[prj: {project}] [app: {applet}] [type: {event_type}] [hdl: {handler}]"


class PublisherConflictError(ConflictError):
    number = 7


class AppletNameConflictError(ConflictError):
    number = 9


class AccountIdentityConflictError(ConflictError):
    number = 14


class AccountInUseError(ConflictError):
    """The account has projects, so it is deleted only with `force=true`."""

    number = 50
    template = "account {account} has {projects} projects; force=true deletes them too"


class LastAdministratorError(ConflictError):
    """The last enabled administrator cannot be disabled or deleted."""

    number = 51
    template = "account {account} is the last administrator; appoint another one first"


class OperatorConflictError(ConflictError):
    number = 17


class ProjectOperatorConflictError(ConflictError):
    number = 19
    msg = "Project Operator relationship Conflict"


class AccessKeyNameConflictError(ConflictError):
    number = 20


class CronJobConflictError(ConflictError):
    number = 10


class ContractLogConflictError(ConflictError):
    number = 11


class ChainTxConflictError(ConflictError):
    number = 12


class ContractAbiConflictError(ConflictError):
    """The project already has an ABI with that name. Not in the interface document."""

    number = 56


class ChainHeightConflictError(ConflictError):
    number = 13


class TrafficLimitConflictError(ConflictError):
    number = 18


class IdempotencyKeyReusedError(NodeError):
    """The `Idempotency-Key` was already used for an event with another type or payload. This
    event did not run. Not in the interface document."""

    status = 422
    template = "the Idempotency-Key {key} was already used for another event; use a new one"
