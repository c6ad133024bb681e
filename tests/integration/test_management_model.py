"""Model test of management: after any sequence of calls a node has the same objects as a small
model.

Two accounts and an administrator create, change and remove objects at random, including each
other's; after every call the lists are compared, and in the middle the node is restarted.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.support.management import LOG_WAT, wasm
from tests.support.nodes import Answer, RunningNode, message

SEEDS = range(4)
STEPS = 90  # before the restart, and again after it
CODES = {"start": 0, "mint": 7}  # the return values of the module's handlers
NOBODYS = "1"  # an unused id

people = ["ada", "bob"]
# Mostly the owner of a project, and sometimes another account.
roles = ["owner", "owner", "owner", "owner", "other"]
admins = ["root", "root", "root", "owner", "other"]
projects = ["p", "q"]
names = ["one", "two"]
types = ["DEFAULT", "HEAT", "COLD"]
handlers = sorted(CODES)
picks = list(range(6))
expressions = ["0 0 1 1 *", "@every 8000h"]
kinds = ["EVENT", "BLOCKCHAIN"]
thresholds = [1_000_000, 2_000_000]


@dataclass
class Known:
    """A project in the model; all objects are by id, in the order of their creation."""

    owner: str
    project_id: str
    applets: dict[str, str] = field(default_factory=dict)
    instances: dict[str, tuple[str, str]] = field(default_factory=dict)
    strategies: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    publishers: dict[str, tuple[str, str]] = field(default_factory=dict)
    jobs: dict[str, tuple[str, str]] = field(default_factory=dict)
    limits: dict[str, tuple[int, str]] = field(default_factory=dict)

    def codes(self, event_type: str) -> list[int]:
        """Return the codes of an event's handlers: those of its exact type, or else those of
        DEFAULT."""
        for wanted in (event_type, "DEFAULT"):
            fitting = [s for s in self.strategies.values() if s[1] == wanted]
            if fitting:
                return [
                    CODES[handler] if self.instances[applet][1] == "STARTED" else -1
                    for applet, _, handler in fitting
                ]
        return []


def pick(items: dict[str, Any], number: int) -> str:
    """Return one of the ids, or an unused one if there are none."""
    return list(items)[number % len(items)] if items else NOBODYS


STEPS_THERE_ARE: list[tuple[Callable[..., None], dict[str, Sequence[Any]]]] = []


def step(**choices: Sequence[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorator that makes a method a step of `Walk`; its arguments are chosen from these."""

    def register(method: Callable[..., None]) -> Callable[..., None]:
        STEPS_THERE_ARE.append((method, choices))
        return method

    return register


class Walk:
    """One random walk over a node without projects."""

    def __init__(self, node: RunningNode, tokens: dict[str, str], module: bytes) -> None:
        self.node, self.tokens, self.module = node, tokens, module
        self.model: dict[str, Known] = {}
        self.devices: dict[str, Any] = {}
        self.done: list[str] = []

    def call(self, who: str, method: str, path: str, body: object = None) -> Answer:
        return self.node.call(method, path, body, token=self.tokens[who])

    def expect(self, answer: Answer, status: int, key: str = "") -> Answer:
        assert answer.status == status, answer
        assert not key or answer.json["key"] == key, answer
        return answer

    def go(self, steps: int, chance: random.Random) -> None:
        """Take steps at random. The lists of the project of a step are compared after the step, all
        lists after each tenth."""
        for number in range(steps):
            method, choices = chance.choice(STEPS_THERE_ARE)
            given = {name: chance.choice(among) for name, among in choices.items()}
            self.done.append(f"{method.__name__}({given})")
            try:
                method(self, **given)
                if number % 10 == 9:
                    self.the_node_has_what_the_model_has()
                elif (name := str(given.get("project"))) in self.model:
                    self._compare(name, self.model[name])
            except AssertionError as failure:
                failure.add_note("\n".join(["the walk:", *self.done]))
                raise

    def actor(self, role: str, project: str) -> str:
        """Return the account of a role, for a project that may not exist."""
        owner = self.model[project].owner if project in self.model else "ada"
        return {"owner": owner, "other": "bob" if owner == "ada" else "ada"}.get(role, role)

    def own(self, who: str, project: str) -> Known | None:
        """Return the project if it exists and belongs to this account."""
        known = self.model.get(project)
        return known if known is not None and known.owner == who else None

    def id_of(self, project: str) -> str:
        return self.model[project].project_id if project in self.model else NOBODYS

    # ---------------------------------------------------------------- projects

    def furnish(self) -> None:
        for who, project in (("ada", "p"), ("bob", "q")):
            self.create_project(who, project)
            self.deploy("owner", project, "one", "DEFAULT", "start")
            self.add_publisher("owner", project, "one", "one")

    @step(who=people, project=projects)
    def create_project(self, who: str, project: str) -> None:
        answer = self.call(who, "POST", "/project", {"name": project})
        if project in self.model:
            self.expect(answer, 409, "ProjectNameConflict")
        else:
            made = self.expect(answer, 201).json
            self.model[project] = Known(who, made["projectID"])

    @step(role=roles, project=projects, sure=[False, False, True])
    def remove_project(self, role: str, project: str, sure: bool) -> None:
        who = self.actor(role, project)
        if not sure:
            return  # otherwise a project would rarely contain much
        answer = self.call(who, "DELETE", f"/project/x/{project}")
        if self.own(who, project) is None:
            self.expect(answer, 404, "ProjectNotFound")
        else:
            self.expect(answer, 204)
            del self.model[project]

    # ---------------------------------------------------------------- applets

    @step(role=roles, project=projects, name=names, event_type=types, handler=handlers)
    def deploy(self, role: str, project: str, name: str, event_type: str, handler: str) -> None:
        who = self.actor(role, project)
        known = self.own(who, project)
        self.node.token = self.tokens[who]
        rules = [{"eventType": event_type, "handler": handler}]
        answer = self.node.upload(project, self.module, name, rules)
        if known is None:
            self.expect(answer, 404, "ProjectNotFound")
        elif name in known.applets.values():
            made = self.expect(answer, 201).json
            assert made["name"] != name
            self.expect(self.call(who, "DELETE", f"/applet/data/{made['appletID']}"), 204)
        else:
            made = self.expect(answer, 201).json
            applet = made["appletID"]
            known.applets[applet] = name
            known.instances[applet] = made["instance"]["instanceID"], "STARTED"
            (strategy,) = made["strategies"]
            known.strategies[strategy["strategyID"]] = applet, event_type, handler

    @step(role=roles, project=projects, number=picks)
    def remove_applet(self, role: str, project: str, number: int) -> None:
        who = self.actor(role, project)
        known = self.model.get(project)
        applet = pick(known.applets, number) if known else NOBODYS
        answer = self.call(who, "DELETE", f"/applet/data/{applet}")
        mine = self.own(who, project)
        if mine is None or applet not in mine.applets:
            self.expect(answer, 404, "AppletNotFound")
            return
        self.expect(answer, 204)
        del mine.applets[applet], mine.instances[applet]
        mine.strategies = {k: s for k, s in mine.strategies.items() if s[0] != applet}

    @step(role=roles, project=projects, number=picks, start=[True, True, False])
    def start_or_stop(self, role: str, project: str, number: int, start: bool) -> None:
        who = self.actor(role, project)
        known = self.model.get(project)
        applet = pick(known.applets, number) if known else NOBODYS
        instance = known.instances[applet][0] if known and applet in known.instances else NOBODYS
        answer = self.call(who, "PUT", f"/deploy/{instance}/{'START' if start else 'STOP'}")
        mine = self.own(who, project)
        if mine is None or applet not in mine.applets:
            self.expect(answer, 404, "InstanceNotFound")
        else:
            self.expect(answer, 204)
            mine.instances[applet] = instance, "STARTED" if start else "STOPPED"

    # ---------------------------------------------------------------- strategies

    @step(role=roles, project=projects, number=picks, event_type=types, handler=handlers)
    def add_strategy(
        self, role: str, project: str, number: int, event_type: str, handler: str
    ) -> None:
        who = self.actor(role, project)
        known, mine = self.model.get(project), self.own(who, project)
        applet = pick(known.applets, number) if known else NOBODYS
        body = {"appletID": applet, "eventType": event_type, "handler": handler}
        answer = self.call(who, "POST", f"/strategy/x/{project}", body)
        if mine is None:
            self.expect(answer, 404, "ProjectNotFound")
        elif applet not in mine.applets:
            self.expect(answer, 404, "AppletNotFound")
        elif (applet, event_type, handler) in mine.strategies.values():
            self.expect(answer, 409, "StrategyConflict")
        else:
            made = self.expect(answer, 201).json
            mine.strategies[made["strategyID"]] = applet, event_type, handler

    @step(role=roles, project=projects, number=picks, event_type=types, handler=handlers)
    def change_strategy(
        self, role: str, project: str, number: int, event_type: str, handler: str
    ) -> None:
        who = self.actor(role, project)
        known, mine = self.model.get(project), self.own(who, project)
        strategy = pick(known.strategies, number) if known else NOBODYS
        applet = known.strategies[strategy][0] if known and known.strategies else NOBODYS
        stated = applet, event_type, handler
        body = {"appletID": applet, "eventType": event_type, "handler": handler}
        answer = self.call(who, "PUT", f"/strategy/{strategy}", body)
        if mine is None or strategy not in mine.strategies:
            self.expect(answer, 404, "StrategyNotFound")
        elif any(s == stated for k, s in mine.strategies.items() if k != strategy):
            self.expect(answer, 409, "StrategyConflict")
        else:
            self.expect(answer, 204)
            mine.strategies[strategy] = stated

    @step(role=roles, project=projects, number=picks)
    def remove_strategy(self, role: str, project: str, number: int) -> None:
        who = self.actor(role, project)
        known, mine = self.model.get(project), self.own(who, project)
        strategy = pick(known.strategies, number) if known else NOBODYS
        answer = self.call(who, "DELETE", f"/strategy/data/{strategy}")
        if mine is None or strategy not in mine.strategies:
            self.expect(answer, 404, "StrategyNotFound")
        else:
            self.expect(answer, 204)
            del mine.strategies[strategy]

    # ---------------------------------------------------------------- publishers

    @step(role=roles, project=projects, name=names, key=names)
    def add_publisher(self, role: str, project: str, name: str, key: str) -> None:
        who = self.actor(role, project)
        mine = self.own(who, project)
        answer = self.call(who, "POST", f"/publisher/x/{project}", {"name": name, "key": key})
        if mine is None:
            self.expect(answer, 404, "ProjectNotFound")
        elif key in [known for _, known in mine.publishers.values()]:
            self.expect(answer, 409, "PublisherConflict")
        else:
            made = self.expect(answer, 201).json
            mine.publishers[made["publisherID"]] = name, key
            self.devices[made["publisherID"]] = made

    @step(role=roles, project=projects, number=picks, name=names, key=names)
    def change_publisher(self, role: str, project: str, number: int, name: str, key: str) -> None:
        who = self.actor(role, project)
        known, mine = self.model.get(project), self.own(who, project)
        publisher = pick(known.publishers, number) if known else NOBODYS
        path = f"/publisher/x/{project}/{publisher}"
        answer = self.call(who, "PUT", path, {"name": name, "key": key})
        if mine is None:
            self.expect(answer, 404, "ProjectNotFound")
        elif publisher not in mine.publishers:
            self.expect(answer, 404, "PublisherNotFound")
        elif key in [p[1] for k, p in mine.publishers.items() if k != publisher]:
            self.expect(answer, 409, "PublisherConflict")
        else:
            self.expect(answer, 204)
            mine.publishers[publisher] = name, key

    @step(role=roles, project=projects, number=picks)
    def remove_publisher(self, role: str, project: str, number: int) -> None:
        who = self.actor(role, project)
        known, mine = self.model.get(project), self.own(who, project)
        publisher = pick(known.publishers, number) if known else NOBODYS
        answer = self.call(who, "DELETE", f"/publisher/data/{publisher}")
        if mine is None or publisher not in mine.publishers:
            self.expect(answer, 404, "PublisherNotFound")
        else:
            self.expect(answer, 204)
            del mine.publishers[publisher]

    # ---------------------------------------------------------------- cron jobs

    @step(role=roles, project=projects, expression=expressions, event_type=types)
    def add_job(self, role: str, project: str, expression: str, event_type: str) -> None:
        who = self.actor(role, project)
        mine = self.own(who, project)
        body = {"cronExpressions": expression, "eventType": event_type}
        answer = self.call(who, "POST", f"/cronjob/{self.id_of(project)}", body)
        if mine is None:
            self.expect(answer, 404, "ProjectNotFound")
        elif (expression, event_type) in mine.jobs.values():
            self.expect(answer, 409, "CronJobConflict")
        else:
            made = self.expect(answer, 201).json
            mine.jobs[made["cronJobID"]] = expression, event_type

    @step(role=roles, project=projects, number=picks)
    def remove_job(self, role: str, project: str, number: int) -> None:
        who = self.actor(role, project)
        known, mine = self.model.get(project), self.own(who, project)
        job = pick(known.jobs, number) if known else NOBODYS
        answer = self.call(who, "DELETE", f"/cronjob/data/{job}")
        if mine is None or job not in mine.jobs:
            self.expect(answer, 404, "CronJobNotFound")
        else:
            self.expect(answer, 204)
            del mine.jobs[job]

    # ---------------------------------------------------------------- traffic limits

    @step(role=admins, project=projects, kind=kinds, threshold=thresholds)
    def add_limit(self, role: str, project: str, kind: str, threshold: int) -> None:
        who = self.actor(role, project)
        known = self.model.get(project)
        body = {"threshold": threshold, "duration": "1h", "apiType": kind}
        answer = self.call(who, "POST", f"/traffic/x/{project}", body)
        if who != "root":
            self.expect(answer, 401, "NoAdminPermission")
        elif known is None:
            self.expect(answer, 404, "ProjectNotFound")
        elif kind in [had for _, had in known.limits.values()]:
            self.expect(answer, 409, "TrafficLimitConflict")
        else:
            made = self.expect(answer, 201).json
            known.limits[made["trafficLimitID"]] = threshold, kind

    @step(project=projects, number=picks, threshold=thresholds)
    def change_limit(self, project: str, number: int, threshold: int) -> None:
        known = self.model.get(project)
        limit = pick(known.limits, number) if known else NOBODYS
        body = {"threshold": threshold, "duration": "1h"}
        answer = self.call("root", "PUT", f"/traffic/x/{project}/{limit}", body)
        if known is None:
            self.expect(answer, 404, "ProjectNotFound")
        elif limit not in known.limits:
            self.expect(answer, 404, "TrafficLimitNotFound")
        else:
            self.expect(answer, 200)
            known.limits[limit] = threshold, known.limits[limit][1]

    @step(project=projects)
    def remove_limits(self, project: str) -> None:
        answer = self.call("root", "DELETE", f"/traffic/x/{project}")
        known = self.model.get(project)
        if known is None:
            self.expect(answer, 404, "ProjectNotFound")
        else:
            self.expect(answer, 204)
            known.limits.clear()

    # ---------------------------------------------------------------- events

    @step(project=projects, number=picks, event_type=types)
    def send(self, project: str, number: int, event_type: str) -> None:
        known = self.model.get(project)
        if known is None or not known.publishers:
            return
        publisher = pick(known.publishers, number)
        device = {**self.devices[publisher], "key": known.publishers[publisher][1]}
        answer = self.node.send(project, message(device, event_type=event_type))
        codes = known.codes(event_type)
        if codes:
            results = self.expect(answer, 201).json["results"]
            assert [result["code"] for result in results] == codes
        else:
            self.expect(answer, 404, "StrategyNotFound")

    # ---------------------------------------------------------------- what holds after each call

    def the_node_has_what_the_model_has(self) -> None:
        rows = self.call("root", "GET", "/project/datalist?size=-1").json["data"]
        assert {row["name"]: row["projectID"] for row in rows} == {
            name: known.project_id for name, known in self.model.items()
        }
        for who in ("ada", "bob"):
            rows = self.call(who, "GET", "/project?size=-1").json["data"]
            assert {row["projectName"] for row in rows} == {
                name for name, known in self.model.items() if known.owner == who
            }
        for name, known in self.model.items():
            self._compare(name, known)

    def _compare(self, name: str, known: Known) -> None:
        def rows(path: str) -> Any:
            answer = self.expect(self.call(known.owner, "GET", f"{path}?size=-1"), 200).json
            assert answer["total"] == len(answer["data"])
            return answer["data"]

        found = rows(f"/applet/x/{name}/datalist")
        assert {row["appletID"]: row["name"] for row in found} == known.applets
        assert {
            row["appletID"]: (row["instance"]["instanceID"], row["instance"]["state"])
            for row in found
        } == known.instances
        assert {
            row["strategyID"]: (row["appletID"], row["eventType"], row["handler"])
            for row in rows(f"/strategy/x/{name}/datalist")
        } == known.strategies
        assert {
            row["publisherID"]: (row["name"], row["key"]) for row in rows(f"/publisher/x/{name}")
        } == known.publishers
        assert {
            row["cronJobID"]: (row["cronExpressions"], row["eventType"])
            for row in rows(f"/cronjob/{known.project_id}")
        } == known.jobs
        assert {
            row["trafficLimitID"]: (row["threshold"], row["apiType"])
            for row in rows(f"/traffic/x/{name}/datalist")
        } == known.limits

    def leave(self) -> None:
        """Remove all projects, and check that nothing of them is left for the next walk."""
        for name in self.model:
            self.call("root", "DELETE", f"/project/x/{name}")
        for known in self.model.values():
            for path, ids in (
                ("/applet/data", known.applets),
                ("/strategy/data", known.strategies),
                ("/publisher/data", known.publishers),
                ("/cronjob/data", known.jobs),
                ("/traffic/data", known.limits),
            ):
                for one in ids:
                    assert self.call("root", "GET", f"{path}/{one}").status == 404


def accounts(node: RunningNode) -> dict[str, str]:
    """The tokens of the administrator and of two more accounts."""
    tokens = {"root": node.token}
    for name in ("ada", "bob"):
        body = {"username": name, "password": "correct horse", "role": "DEVELOPER"}
        assert node.call("POST", "/register/admin", body).status == 201
        tokens[name] = node.call("PUT", "/login", body).json["token"]
    return tokens


@pytest.fixture(scope="module")
def tokens(node: RunningNode) -> dict[str, str]:
    """The tokens of the administrator and of two more accounts."""
    return accounts(node)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.thorough("1", "2", "3")
def test_a_node_has_what_a_model_of_it_has_also_after_a_restart(
    node: RunningNode, tokens: dict[str, str], seed: int
) -> None:
    chance = random.Random(seed)
    walk = Walk(node, tokens, wasm(LOG_WAT))
    walk.furnish()
    walk.go(STEPS, chance)
    node.stop()
    node.start()
    walk.the_node_has_what_the_model_has()
    walk.go(STEPS, chance)
    walk.leave()
