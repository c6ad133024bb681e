"""Makes the data folder of the present version that later versions must be able to open.

    python -m tests.stores.make

Run it when a version is released, and commit its output: `tests/stores/<version>.tar.gz`, a backup,
and `<version>.json`, the data of a client of that node. Its secrets protect nothing.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from fieldbrook import __version__
from tests.support.applets import SENDER, TALLY
from tests.support.nodes import RunningNode, message, strategies, until

STORES = Path(__file__).parent
SQL = (STORES.parent / "modules" / "sql.wat").read_bytes()
TABLE = {"name": "t_kept", "cols": [{"name": "f_text", "constrains": {"datatype": "TEXT"}}]}
PROJECT = "kept"
PASSWORD = "a password that is published"


def make(folder: Path) -> dict[str, Any]:
    """Fill a new node and back it up into `tests/stores`; return the data of a client."""
    data = folder / "n"
    data.mkdir()
    (data / "outbox.parked").touch()  # so that the backup has messages of a handler
    node = RunningNode(data)
    try:
        known = fill(node)
        archive = STORES / f"{__version__}.tar.gz"
        archive.unlink(missing_ok=True)
        command = [sys.executable, "-m", "fieldbrook", "--data", str(data), "backup", str(archive)]
        subprocess.run(command, check=True)
        return known
    finally:
        node.stop()


def fill(node: RunningNode) -> dict[str, Any]:
    node.log_in(password=PASSWORD)
    project = node.create_project(PROJECT)
    project_id = project["projectID"]
    _post(node, f"/project_config/x/{PROJECT}/PROJECT_ENV", {"env": [["PLACE", "roof"]]})
    schemas = {"schemas": [{"schema": "public", "tables": [TABLE]}]}
    _post(node, f"/project_config/x/{PROJECT}/PROJECT_DATABASE", schemas)
    tally = node.deploy(
        PROJECT,
        TALLY,
        "tally",
        strategies=strategies("start", "fail", "seven"),
    )
    querying = node.deploy(PROJECT, SQL, "querying", strategies=strategies("set", "get"))
    node.deploy(PROJECT, SENDER, "sending", strategies=strategies(PUBLISH="publish"))
    publishers = [node.add_publisher(PROJECT, key) for key in ("one", "two")]
    _post(node, f"/cronjob/{project_id}", {"cronExpressions": "0 5 1 1 *", "eventType": "YEARLY"})
    limit = {"threshold": 1000, "duration": "24h", "apiType": "EVENT"}
    _post(node, f"/traffic/x/{PROJECT}", limit)
    _post(node, "/account_access_key", {"name": "kept-key"})
    for number in range(3):
        sent = message(publishers[0], b"line %d" % number, "START")
        sent["header"]["event_id"] = f"start-{number}"
        assert node.send(PROJECT, sent).status == 201
    failed = message(publishers[1], b"\0fails", "FAIL")
    failed["header"]["event_id"] = "fail-0"
    assert node.send(PROJECT, failed).status == 201
    insert = {
        "statement": "INSERT INTO t_kept (f_text) VALUES (?)",
        "params": [{"string": "a row"}],
    }
    for payload, kind in ((json.dumps(insert).encode(), "SET"), (b"21.5", "PUBLISH")):
        answer = node.send(PROJECT, message(publishers[0], payload, kind))
        assert answer.status == 201, answer
        assert answer.json["results"][0]["code"] >= 0, answer
    path = f"/event_log/{PROJECT}?eventID=fail-0"
    until(lambda: node.call("GET", path).json["data"], "the history is written")
    path = f"/applet_log/{PROJECT}"
    until(lambda: len(node.call("GET", path).json["data"]) >= 3, "the log is written")
    return {
        "username": "admin",
        "password": PASSWORD,
        "project": PROJECT,
        "projectID": project_id,
        "tally": tally["appletID"],
        "querying": querying["appletID"],
        "publishers": [
            {key: publisher[key] for key in ("publisherID", "key", "token")}
            for publisher in publishers
        ],
    }


def _post(node: RunningNode, path: str, body: Any) -> None:
    answer = node.call("POST", path, body)
    assert answer.status == 201, (path, answer)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="fb-") as made:
        knowledge = make(Path(made))
    (STORES / f"{__version__}.json").write_text(json.dumps(knowledge, indent=1) + "\n")
