"""The object of the request does not exist, or is not visible to the client (404)."""

from __future__ import annotations

from fieldbrook.core.errors.base import NodeError


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


class EventNotFoundError(NotFoundError):
    """The history has no event at this place any more. Not in the interface document."""

    key = "EventNotFound"
    number = 57
    msg = "Event Not Found"
    template = "no event at place {place} of the history"


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
