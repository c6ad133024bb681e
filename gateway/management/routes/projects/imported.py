"""Validation of the records in an imported project, by the rules of the routes.

The file of a project is untrusted. Its records reach processes that also serve other projects
(the scheduler and the processes of chains), so every record must be one that a route would accept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Any, get_args

import msgspec

from fieldbrook.core.durations import parse_duration
from fieldbrook.core.errors import BadRequestError, FieldError, NodeError
from fieldbrook.core.model import (
    CHAIN_HEIGHT,
    CHAIN_TX,
    CONTRACT_LOG,
    EVENT_TYPE_LIMIT,
    NAME_LIMIT,
    PER_BATCH,
    PER_EVENT,
    PER_INSTANCE,
    PROJECT_CHAINS,
    PROJECT_DATABASE,
    PROJECT_ENV,
    PROJECT_FLOW,
    PROJECT_SPENDING,
    REUSE_EVENTS_LIMIT,
    STARTED,
    STOPPED,
    Applet,
    Config,
    CronJob,
    Monitor,
    Publisher,
    Strategy,
    TrafficLimit,
)
from fieldbrook.gateway.management.framework.binding import JSON_LIMIT_BYTES
from fieldbrook.gateway.management.routes.chain import contract_abis, contract_events
from fieldbrook.gateway.management.routes.chain.monitors import (
    CreateChainTx,
    CreateContractLog,
    Whole,
)
from fieldbrook.gateway.management.routes.events.traffic_limits import (
    ApiType,
    Threshold,
    is_duration,
)
from fieldbrook.gateway.management.routes.projects.configurations.chain_settings import (
    ChainConduct,
    SpendingLimit,
)
from fieldbrook.gateway.management.routes.projects.configurations.database import (
    Database,
    check_database,
)
from fieldbrook.gateway.management.routes.projects.configurations.environment import (
    Environment,
    check_environment,
)
from fieldbrook.gateway.management.routes.projects.configurations.flow import Flow
from fieldbrook.gateway.management.routes.projects.publishers import (
    EVENT_TYPES_BYTES,
    EVENT_TYPES_LIMIT,
)
from fieldbrook.gateway.schedule.cron import parse_schedule
from fieldbrook.security.tokens import TOKEN_LIMIT
from fieldbrook.storage.backup.transfer import Exported, ExportedToken
from fieldbrook.storage.registry.tables import monitor_rule

_TEXT_LIMIT = 64 << 10
_TOPICS = 4
_DIGEST_BYTES = 32
# Times are shown in the form of RFC 3339, whose last year is 9999.
Moment = Annotated[int, msgspec.Meta(ge=0, le=253_402_300_799_999)]
_SHOWN = 64
_CONFIGS: dict[str, type[msgspec.Struct]] = {
    PROJECT_ENV: Environment,
    PROJECT_DATABASE: Database,
    PROJECT_FLOW: Flow,
    PROJECT_SPENDING: SpendingLimit,
    PROJECT_CHAINS: ChainConduct,
}


class _WrongError(Exception):
    """A record is not one that a route would create; the message gives the reason."""


def find_problem(exported: Exported) -> str:
    """The reason why the first wrong record of a file is refused; empty if all are valid."""
    for what, records, check in (
        ("configuration", exported.configs, _check_config),
        ("applet", exported.applets, _check_applet),
        ("strategy", exported.strategies, _check_strategy),
        ("publisher", exported.publishers, _check_publisher),
        ("token of a publisher", exported.tokens, _check_token),
        ("cron job", exported.cron_jobs, _check_cron_job),
        ("monitor", exported.monitors, _check_monitor),
        ("traffic limit", exported.traffic_limits, _check_traffic_limit),
    ):
        if reason := _first(records, check):
            return f"its {what} {reason}"
    about = exported.project
    if max(map(len, (about.version, about.protocol, about.description))) > _TEXT_LIMIT:
        return f"a text of the project has more than {_TEXT_LIMIT} characters"
    for what, keys in (
        ("configurations", [config.kind for config in exported.configs]),
        ("cron jobs", [(job.expression, job.event_type) for job in exported.cron_jobs]),
        ("monitors", [monitor_rule(monitor) for monitor in exported.monitors]),
        ("traffic limits", [limit.api_type for limit in exported.traffic_limits]),
    ):
        if len(set(keys)) < len(keys):
            return f"it has two {what} of the same kind"
    return contract_abis.find_problem(exported.contract_abis)


def _first(records: Iterable[Any], check: Callable[[Any], str]) -> str:
    for record in records:
        name = "?"
        try:
            name = check(record)
        except BadRequestError as error:
            fields: list[FieldError] = error.fields() or []
            return "; ".join(f"{field.field}: {field.msg}" for field in fields[:3])
        except (_WrongError, NodeError, msgspec.MsgspecError, ValueError, RecursionError) as error:
            return str(error)
        if len(name) > NAME_LIMIT:
            return f"{name[:_SHOWN]!r}: more than {NAME_LIMIT} characters"
    return ""


def _require(good: bool, name: str, reason: str) -> None:
    if not good:
        raise _WrongError(f"{name[:_SHOWN]!r}: {reason}")


def _check_config(config: Config) -> str:
    kind = _CONFIGS.get(config.kind)
    _require(kind is not None, config.kind, "there is no such kind")
    size = len(config.value)
    _require(size <= JSON_LIMIT_BYTES, config.kind, f"it has {size} bytes")
    value: Any = msgspec.json.decode(config.value, type=kind)
    errors: list[FieldError] = []
    if isinstance(value, Environment):
        errors = check_environment(value.env, PROJECT_ENV)
    elif isinstance(value, Database):
        errors = check_database(value, PROJECT_DATABASE)
    if errors:
        raise BadRequestError(*errors)
    return config.kind


def _check_applet(applet: Applet) -> str:
    _require(applet.state in (STARTED, STOPPED), applet.name, f"state {applet.state[:_SHOWN]!r}")
    isolated = applet.isolation in (PER_EVENT, PER_BATCH, PER_INSTANCE)
    _require(isolated, applet.name, f"isolation {applet.isolation[:_SHOWN]!r}")
    reused = applet.reuse_events
    _require(0 < reused <= REUSE_EVENTS_LIMIT, applet.name, f"reuseEvents is {reused}")
    texts = (applet.wasm_name, applet.cache_mode, applet.cache_prefix)
    _require(max(map(len, texts)) <= NAME_LIMIT, applet.name, "a text is too long")
    return applet.name


def _check_strategy(strategy: Strategy) -> str:
    _check_event_type(strategy.event_type, strategy.handler)
    return strategy.handler


def _check_publisher(publisher: Publisher) -> str:
    key = publisher.key
    _require(0 < len(key) <= NAME_LIMIT, key, "a key has 1 to 256 characters")
    _require(len(publisher.token) <= TOKEN_LIMIT, key, "its token is too long")
    _require(len(publisher.event_types) <= EVENT_TYPES_LIMIT, key, "too many event types")
    size = sum(len(each.encode()) for each in publisher.event_types)
    _require(size <= EVENT_TYPES_BYTES, key, "too long event types")
    for event_type in publisher.event_types:
        _check_event_type(event_type, key)
    for moment in (publisher.token_expires_at, publisher.token_issued_at):
        msgspec.convert(moment, Moment)
    return publisher.name


def _check_token(token: ExportedToken) -> str:
    name = str(token.publisher_id)
    _require(len(token.digest) == _DIGEST_BYTES, name, "its digest is not a SHA-256 digest")
    for moment in (token.issued_at_s, token.expires_at):
        msgspec.convert(moment, Moment)
    return name


def _check_cron_job(job: CronJob) -> str:
    _check_event_type(job.event_type, job.expression)
    _require(len(job.expression) <= NAME_LIMIT, job.expression, "too long")
    parse_schedule(job.expression)
    return job.expression


def _check_monitor(monitor: Monitor) -> str:
    name = monitor.event_type
    _check_event_type(name, monitor.kind)
    for number in (
        *(monitor.chain_id, monitor.height),
        *(monitor.block_start, monitor.block_end, monitor.block_current),
    ):
        msgspec.convert(number, Whole)
    if monitor.kind == CONTRACT_LOG:
        _check_contract_log(monitor)
    elif monitor.kind == CHAIN_TX:
        CreateChainTx(chain_id=monitor.chain_id, tx_hash=monitor.tx_hash).command()
    else:
        _require(monitor.kind == CHAIN_HEIGHT, name, f"kind {monitor.kind[:_SHOWN]!r}")
    texts = (monitor.chain_name, monitor.abi_name)
    _require(max(map(len, texts)) <= NAME_LIMIT, name, "a text is too long")
    return name


def _check_contract_log(monitor: Monitor) -> None:
    name = monitor.event_type
    _require(len(monitor.topics) == _TOPICS, name, f"{len(monitor.topics)} topics")
    topic0, topic1, topic2, topic3 = monitor.topics
    CreateContractLog(
        chain_id=monitor.chain_id,
        address=monitor.address,
        block_start=monitor.block_start,
        block_end=monitor.block_end,
        topic0=topic0,
        topic1=topic1,
        topic2=topic2,
        topic3=topic3,
    ).command()
    _require(len(monitor.event) <= _TEXT_LIMIT, name, "its event is too long")
    if monitor.event_abi:
        _require(len(monitor.event_abi) <= contract_abis.LIMIT_BYTES, name, "its ABI is too long")
        declared = msgspec.json.decode(monitor.event_abi, type=dict[str, Any])
        known = contract_events.signatures([{**declared, "type": "event"}])
        _require(known == [monitor.event], name, "its ABI is that of another event")


def _check_traffic_limit(limit: TrafficLimit) -> str:
    kind = limit.api_type
    _require(kind in get_args(ApiType), kind, "there is no such kind")
    msgspec.convert(limit.threshold, Threshold)
    msgspec.convert(limit.publisher_threshold, Whole)
    msgspec.convert(limit.start_at, Moment)
    _require(is_duration(limit.duration_ms), kind, f"a window of {limit.duration_ms} ms")
    if limit.duration:
        same = parse_duration(limit.duration) == limit.duration_ms
        _require(same, kind, "the text and the number of its duration differ")
    return kind


def _check_event_type(event_type: str, of: str) -> None:
    length = len(event_type)
    _require(0 < length <= EVENT_TYPE_LIMIT, of, f"an event type of {length} characters")
