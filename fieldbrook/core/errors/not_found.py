"""The object of the request does not exist, or is not visible to the client (404)."""

from __future__ import annotations

from fieldbrook.core.errors.base import NodeError


class NotFoundError(NodeError):
    status = 404
    number = 1
    msg = "NotFound"
    template = "{what}"


class ProjectNotFoundError(NotFoundError):
    number = 2
    template = "project {project}"


class ConfigNotFoundError(NotFoundError):
    number = 3
    template = "{kind} of project {project}"


class ResourceNotFoundError(NotFoundError):
    number = 4
    template = "resource {resource}"


class AppletNotFoundError(NotFoundError):
    number = 5
    template = "applet {applet}"


class InstanceNotFoundError(NotFoundError):
    number = 6
    template = "instance {instance}"


class StrategyNotFoundError(NotFoundError):
    number = 7
    template = "{what}"


class PublisherNotFoundError(NotFoundError):
    number = 8
    template = "publisher {pub_id}"


class AccountIdentityNotFoundError(NotFoundError):
    number = 9
    template = "{username}"


class AccountNotFoundError(NotFoundError):
    number = 17
    template = "account {account}"


class ResourcePermNotFoundError(NotFoundError):
    """The caller owns no such resource; another account may own one."""

    number = 10
    template = "resource {resource}"


class AppletVersionNotFoundError(NotFoundError):
    """The applet never had that version, or the version is no longer kept."""

    number = 50
    template = "applet {applet} has no version {version}"


class CronJobNotFoundError(NotFoundError):
    number = 11
    template = "cron job {cron_job}"


class BlockchainNotFoundError(NotFoundError):
    """The setting `chains` has no such chain."""

    number = 13
    template = "chain {chain}"


class ContractLogNotFoundError(NotFoundError):
    number = 14
    template = "contract log monitor {monitor}"


class ChainTxNotFoundError(NotFoundError):
    number = 15
    template = "chain transaction monitor {monitor}"


class ChainHeightNotFoundError(NotFoundError):
    number = 16
    template = "chain height monitor {monitor}"


class ContractAbiNotFoundError(NotFoundError):
    """The project has no such ABI. Not in the interface document."""

    number = 56
    template = "ABI {abi}"


class DeadLetterNotFoundError(NotFoundError):
    """The project has no such dead letter. Not in the interface document."""

    number = 52
    template = "dead letter {letter}"


class EventNotFoundError(NotFoundError):
    """The history has no event at this place any more. Not in the interface document."""

    number = 57
    template = "no event at place {place} of the history"


class TransactionNotFoundError(NotFoundError):
    """There is no such transaction. Not in the interface document."""

    number = 53
    template = "transaction {transaction}"


class TrafficLimitNotFoundError(NotFoundError):
    number = 20
    template = "traffic limit {traffic_limit}"


class OperatorNotFoundError(NotFoundError):
    number = 19


class ProjectOperatorNotFoundError(NotFoundError):
    number = 21
    msg = "Project Operator relationship Not Found"


class AccessKeyNotFoundError(NotFoundError):
    number = 22
    msg = "Account Key Not Found"
