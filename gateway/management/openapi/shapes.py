"""Types of the JSON answers, for the OpenAPI document.

The views make the answers; tests compare the answers of a node with these types.

Source: interface document, section 5.
"""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

from fieldbrook.gateway.management.framework.binding import Sfid


class Times(TypedDict):
    """The times of creation and of the last change, RFC 3339."""

    createdAt: str
    updatedAt: str


class EthClientReply(TypedDict):
    """Ids of chains, as JSON in a string: `{"4690": ""}`."""

    clients: str


class ChainConfigReply(TypedDict):
    """Chains, as JSON in a string: a list of objects with `chainID`, `name`, `endpoint`."""

    chains: str


class PlainProject(Times):
    """A project without its configurations."""

    projectID: Sfid
    accountID: Sfid
    name: str
    version: NotRequired[str]
    protocol: NotRequired[str]
    description: NotRequired[str]
    public: bool
    channelState: bool


class ProjectReply(PlainProject):
    """A project with its configurations."""

    envs: dict[str, Any]
    database: dict[str, Any]
    flow: NotRequired[dict[str, Any]]


class CreatedProjectReply(ProjectReply):
    """A new project. `project` repeats it for early clients."""

    project: PlainProject


class InstanceReply(Times):
    """An instance."""

    instanceID: Sfid
    appletID: Sfid
    instanceState: str
    state: str


class ResourceReply(Times):
    """An uploaded module."""

    resourceID: Sfid
    path: str
    md5: str
    uploadedAt: str
    expireAt: str
    filename: str
    comment: str
    size: int


class StrategyReply(Times):
    """A strategy; a dead one names a handler that the module of its applet does not export."""

    strategyID: Sfid
    projectID: Sfid
    appletID: Sfid
    eventType: str
    handler: str
    autoCollectMetric: bool
    dead: bool
    warnings: NotRequired[list[str]]


class AppletReply(Times):
    """An applet with its instance, resource and strategies."""

    appletID: Sfid
    projectID: Sfid
    resourceID: Sfid
    name: str
    wasmName: str
    isolation: str
    reuseEvents: NotRequired[int]
    version: int
    wasmCache: dict[str, str]
    instance: InstanceReply | None
    resource: ResourceReply
    strategies: list[StrategyReply]
    warnings: NotRequired[list[str]]


class PublisherReply(Times):
    """A publisher with its token."""

    publisherID: Sfid
    projectID: Sfid
    name: str
    key: str
    token: str
    eventTypes: NotRequired[list[str]]
    expiredAt: NotRequired[str]


class ContractAbiReply(Times):
    """A contract ABI of a project, and the signatures of its events."""

    abiID: Sfid
    projectID: Sfid
    projectName: str
    name: str
    events: list[str]
    sizeBytes: int


class WholeContractAbiReply(ContractAbiReply):
    """An ABI as it was uploaded."""

    abi: list[dict[str, Any]]


class TrafficLimitReply(Times):
    """A traffic limit."""

    trafficLimitID: Sfid
    projectID: Sfid
    threshold: int
    duration: str
    apiType: str
    publisherThreshold: int
    startAt: str


class ProjectPage(TypedDict):
    data: list[ProjectReply]
    total: int


class ResourcePage(TypedDict):
    data: list[ResourceReply]
    total: int


class StrategyPage(TypedDict):
    data: list[StrategyReply]
    total: int


class AppletPage(TypedDict):
    data: list[AppletReply]
    total: int


class PublisherPage(TypedDict):
    data: list[PublisherReply]
    total: int


class ContractAbiPage(TypedDict):
    data: list[ContractAbiReply]
    total: int


class TrafficLimitPage(TypedDict):
    data: list[TrafficLimitReply]
    total: int


for _page in (
    ProjectPage,
    ResourcePage,
    StrategyPage,
    AppletPage,
    PublisherPage,
    ContractAbiPage,
    TrafficLimitPage,
):
    _page.__doc__ = "A page of a list; `total` counts all matching rows."
