"""What the tests of accounts, keys and operators share beside the node itself."""

from __future__ import annotations

import json
from typing import Any

from tests.integration.test_management import V0, Node, Reply, User


class KeyHolder:
    """Calls routes with an access key."""

    def __init__(self, node: Node, text: str) -> None:
        self.node = node
        self.text = text

    def __call__(self, method: str, path: str, body: Any = None) -> Reply:
        raw = None if body is None else json.dumps(body)
        headers = {"Authorization": f"Bearer {self.text}"}
        return self.node.send(method, V0 + path, raw, headers)


def holder(user: User, name: str = "ci", days: int = 0, **privileges: str) -> KeyHolder:
    """A new key of the user; a group's name has underscores for its blanks."""
    body = {
        "name": name,
        "expirationDays": days,
        "privileges": [
            {"name": group.replace("_", " "), "perm": permission}
            for group, permission in privileges.items()
        ],
    }
    reply = user("POST", "/account_access_key", body)
    assert reply.status == 201, reply.body
    return KeyHolder(user.node, reply.json["accessKey"])
