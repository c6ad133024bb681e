"""The OpenAPI document describes every answer to any request (Schemathesis)."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import hypothesis
import msgspec
import pytest
import schemathesis
from hypothesis import strategies as st
from requests import RequestException
from schemathesis import GenerationMode
from schemathesis.checks import CheckContext
from schemathesis.config import SchemathesisConfig
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from fieldbrook.core.errors import ModuleRefusedError
from fieldbrook.gateway import replies
from fieldbrook.gateway.management.routes.accounts.account_reply import AccountReply
from fieldbrook.gateway.management.routes.accounts.logins import LoginReply
from fieldbrook.gateway.management.routes.chain.contract_abis import ContractAbiReply
from fieldbrook.gateway.management.routes.events.traffic_limits import TrafficLimitReply
from fieldbrook.gateway.management.routes.projects.replies.applets import AppletReply
from fieldbrook.gateway.management.routes.projects.replies.projects import CreatedProjectReply
from tests.support.management import LOG_WAT, wasm
from tests.support.nodes import PREFIX, Answer, RunningNode
from tests.support.tools import LIMIT_S

EXAMPLES = 3
# The share of operations that succeed at least once; random cron expressions are rarely valid.
REACHED = 0.6
# Deleted objects cannot be requested any more, and their children are deleted with them.
_METHODS = ("GET", "PUT", "POST", "DELETE")
_LAST = (
    *("deploy", "applet", "resource", "project_operator", "operator", "account", "project"),
    "login",  # its DELETE ends the login of this test
)

DESCRIPTION = "/srv-applet-mgr"
PAGE = "/srv-applet-mgr/docs"


def ask(node: RunningNode, method: str, path: str, origin: str = "") -> Answer:
    headers = {"Origin": origin} if origin else {}
    return node.call(method, path, headers=headers, token="")


@pytest.mark.thorough
def test_the_description_is_served_to_anybody_as_json(node: RunningNode) -> None:
    answer = ask(node, "GET", DESCRIPTION)
    assert answer.status == 200
    assert answer.headers["Content-Type"] == replies.JSON_TYPE
    assert answer.json["openapi"] == "3.1.0"
    assert "/event/{channel}" in answer.json["paths"]


def test_the_page_is_served_to_anybody_and_fetches_nothing(node: RunningNode) -> None:
    answer = ask(node, "GET", PAGE)
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'")
    assert b"/event/{channel}" in answer.body


@pytest.mark.parametrize("path", [DESCRIPTION, PAGE])
def test_a_page_of_another_origin_may_read_the_description(node: RunningNode, path: str) -> None:
    assert ask(node, "OPTIONS", path, "https://x.example").status == 204
    answer = ask(node, "GET", path, "https://x.example")
    assert answer.headers["Access-Control-Allow-Origin"] == "*"
    assert "Access-Control-Allow-Origin" not in ask(node, "GET", path).headers


@pytest.mark.parametrize("path", [DESCRIPTION, PAGE])
def test_the_description_is_not_written_to(node: RunningNode, path: str) -> None:
    answer = ask(node, "POST", path)
    assert answer.status == 405
    assert answer.headers["Allow"] == "GET"


def test_what_is_made_and_who_logs_in_is_answered_in_the_form_described(node: RunningNode) -> None:
    def fits(answer: Answer, shape: Any) -> None:
        assert answer.status in (200, 201), answer
        # Encoding the decoded answer gives the same bytes: the answer has no unknown keys, and all
        # keys are in order.
        assert msgspec.to_builtins(msgspec.convert(answer.json, shape)) == answer.json

    person = {"username": "third", "password": "correct horse"}
    fits(node.call("POST", "/register/admin", person), AccountReply)
    fits(node.call("PUT", "/login", person), LoginReply)
    project = node.call("POST", "/project", {"name": "hall"})
    fits(project, CreatedProjectReply)
    fits(node.upload("hall", wasm(LOG_WAT)), AppletReply)
    limit = {"threshold": 1, "duration": "1h", "apiType": "EVENT"}
    fits(node.call("POST", "/traffic/x/hall", limit), TrafficLimitReply)
    abi = {"name": "a", "abi": [{"type": "event", "name": "Ping", "inputs": []}]}
    fits(node.call("POST", "/contract_abi/hall", abi), ContractAbiReply)


def furnish(node: RunningNode) -> dict[str, str]:
    """Create one object of each kind; return their names and ids by the names of path
    parameters."""

    def make(path: str, body: object) -> Any:
        answer = node.call("POST", path, body)
        assert answer.status == 201, answer
        return answer.json

    project = node.create_project("room")
    applet = node.deploy("room", wasm(LOG_WAT))
    publisher = node.add_publisher("room", "sensor")
    drafts = {"appletID": applet["appletID"], "eventType": "HEAT", "handler": "mint"}
    strategy = make("/strategy/x/room", drafts)
    job = make(f"/cronjob/{project['projectID']}", {"cronExpressions": "0 0 1 1 *"})
    limit = make("/traffic/x/room", {"threshold": 1_000_000, "duration": "1h", "apiType": "EVENT"})
    events = [{"type": "event", "name": "Ping", "inputs": []}]
    make("/contract_abi/room", {"name": "kept", "abi": events})
    account = make("/register/admin", {"username": "second", "role": "DEVELOPER"})
    make("/account_access_key", {"name": "ci", "privileges": []})
    operator = make("/operator", {"name": "signer", "privateKey": "0x" + "11" * 32})
    return {
        "channel": "room",
        "projectName": "room",
        "projectID": project["projectID"],
        "appletID": applet["appletID"],
        "instanceID": applet["instance"]["instanceID"],
        "resourceID": applet["resourceID"],
        "version": "1",
        "publisherID": publisher["publisherID"],
        "strategyID": strategy["strategyID"],
        "cronJobID": job["cronJobID"],
        "trafficLimitID": limit["trafficLimitID"],
        "accountID": account["accountID"],
        "operatorID": operator["operatorID"],
        "abiName": "kept",
        "name": "ci",
    }


def turn(operation: Any) -> tuple[int, int]:
    """Return the position of an operation in the order of the test."""
    word = operation.path.split("/")[1]
    return _METHODS.index(operation.method.upper()), _LAST.index(word) if word in _LAST else -1


def real_path(operation: Any, known: dict[str, str]) -> dict[str, str]:
    """Return the path's parameters, filled with existing objects where possible."""
    found = {}
    for parameter in operation.definition.raw.get("parameters", ()):
        note = parameter.get("description", "")
        name = note.removeprefix("here: ") if note.startswith("here: ") else parameter["name"]
        if parameter["in"] == "path" and name in known:
            found[parameter["name"]] = known[name]
    return found


def is_no_failure_of_the_node(
    ctx: CheckContext, response: Any, case: schemathesis.Case[Any]
) -> None:
    """Check that a status of 500 or above has the only possible reason here: a module that cannot
    run."""
    if response.status_code >= 500:
        assert json.loads(response.content)["key"] == ModuleRefusedError.key, response.content


CHECKS = [
    is_no_failure_of_the_node,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]


class Prober:
    """Sends valid and invalid requests to an operation, and records the statuses of the answers."""

    def __init__(self, node: RunningNode, known: dict[str, str]) -> None:
        self.base_url = f"http://127.0.0.1:{node.http_port}{PREFIX}"
        self.node = node
        self.known = known
        self.statuses: dict[str, set[int]] = defaultdict(set)

    def probe(self, operation: Any) -> None:
        path = real_path(operation, self.known)
        cases = st.one_of(
            operation.as_strategy(GenerationMode.POSITIVE, path_parameters=path),
            operation.as_strategy(GenerationMode.POSITIVE),
            operation.as_strategy(GenerationMode.NEGATIVE, path_parameters=path),
        )

        @hypothesis.settings(
            max_examples=EXAMPLES,
            derandomize=True,
            database=None,
            deadline=None,
            phases=[hypothesis.Phase.generate],
            suppress_health_check=list(hypothesis.HealthCheck),
        )
        @hypothesis.given(case=cases)
        def send(case: schemathesis.Case[Any]) -> None:
            # An invented token is refused before anything else is checked; and an answer with
            # `follow` continues until the client leaves.
            for name in ("authorization", "follow"):
                (case.query or {}).pop(name, None)
            headers = {"Authorization": f"Bearer {self.node.token}"}
            response = case.call(self.base_url, headers=headers, timeout=LIMIT_S)
            self.statuses[operation.label].add(response.status_code)
            case.validate_response(response, checks=CHECKS)

        send()
        if operation.path == "/logout":
            self.node.log_in()


@pytest.mark.timeout(300)
@pytest.mark.thorough
def test_whatever_is_sent_the_answer_is_one_that_the_description_has(node: RunningNode) -> None:
    document = ask(node, "GET", DESCRIPTION).json
    # A stream of events never ends: only the form of the first event is checked.
    config = SchemathesisConfig.from_dict({"max-stream-events": 1})
    schema = schemathesis.openapi.from_dict(document, config=config)
    described: list[Any] = list(schema.get_all_operations())
    operations = sorted((each.ok() for each in described), key=turn)
    prober = Prober(node, furnish(node))
    failures = []
    for operation in operations:
        try:
            prober.probe(operation)
        except (AssertionError, FailureGroup, RequestException) as failure:
            failures.append(f"{operation.label}: {failure}")
    assert failures == [], "\n\n".join(failures)
    carried_out = [label for label, statuses in prober.statuses.items() if min(statuses) < 300]
    assert len(carried_out) > REACHED * len(operations), "nearly all examples are refused"
    assert ask(node, "GET", "/liveness").status == 200
