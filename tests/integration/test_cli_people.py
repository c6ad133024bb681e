"""The commands for accounts, access keys and operators, against a real node."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.nodes import RunningNode
from tests.support.shell import Shell, shell_with_login

SECRET = "11" * 32
ADDRESS = "0x19E7E376E7C213B7E7e7e46cc70A5dD086DAff2A"


@pytest.fixture
def shell(node: RunningNode, tmp_path: Path) -> Shell:
    return shell_with_login(tmp_path / "config", node)


@pytest.mark.thorough
def test_an_access_key_works_in_place_of_a_login_as_far_as_it_is_granted(shell: Shell) -> None:
    shell("project", "create", "keys")
    made = shell.json("key", "create", "ci", "--grant", "project=readonly", "--days", "3")
    granted = [item["name"] for item in made["privileges"] if item["perm"] != "NO_ACCESS"]
    assert granted == ["Project"]
    listed = shell.text("key", "list")
    assert "Project=READONLY" in listed
    assert "NO_ACCESS" not in listed
    assert made["accessKey"] not in shell.text("key", "show", "ci")
    assert "Account Access Key" in shell.text("key", "groups")
    login = dict(shell.environment)
    shell.environment["FIELDBROOK_TOKEN"] = made["accessKey"]
    assert "keys" in shell.text("project", "list")
    said = shell.fails("project", "delete", "keys", "--yes", code=4)
    assert "AccessKeyPermissionDenied" in said
    shell.environment.clear()
    shell.environment.update(login)
    shell("key", "update", "ci", "--grant", "*=READ_WRITE", "--description", "all")
    assert shell.text("key", "show", "ci").count("READ_WRITE") > 10
    assert "nothing to change" in shell.fails("key", "update", "ci", code=2)
    assert "did you mean" in shell.fails("key", "create", "x", "--grant", "projekt=READONLY")
    shell("key", "delete", "ci", "--yes")
    assert "AccessKeyNotFound" in shell.fails("key", "delete", "ci", "--yes")
    shell.environment["FIELDBROOK_TOKEN"] = made["accessKey"]
    assert "AccessKeyNotFound" in shell.fails("project", "list")


@pytest.mark.thorough
def test_an_operator_is_made_from_standard_input_and_used_by_a_project(
    node: RunningNode, shell: Shell
) -> None:
    shell("project", "create", "chainy")
    arguments = ("operator", "create", "signer")
    assert "--key-stdin" in shell.fails(*arguments, code=2)
    said = shell.fails(*arguments, "--key-stdin", stdin=b"nonsense-secret\n")
    assert "InvalidPrivateKey" in said
    assert "nonsense-secret" not in said
    made = shell(*arguments, "--key-stdin", stdin=SECRET.encode() + b"\n")
    assert ADDRESS in made.stdout.decode()
    assert SECRET not in made.stdout.decode()
    listed = shell.text("operator", "list")
    assert "default" in listed
    assert "ecdsa" in listed
    assert shell.json("operator", "of", "chainy")["name"] == "default"
    shell("operator", "use", "chainy", "signer")
    assert shell.json("operator", "of", "chainy")["address"] == ADDRESS
    assert "OccupiedOperator" in shell.fails("operator", "delete", "signer", "--yes")
    shell("operator", "release", "chainy")
    shell("operator", "delete", "signer", "--yes")
    assert "there is no operator signer" in shell.fails("operator", "delete", "signer", "--yes")
    key_file = node.data / "secrets" / "operator.key"
    assert key_file.stat().st_mode & 0o777 == 0o600
    assert SECRET not in node.log


@pytest.mark.thorough
def test_accounts_are_administered_and_the_log_tells_of_it(shell: Shell) -> None:
    made = shell.json("account", "create", "eve")
    assert len(made["password"]) == 16
    assert "DEVELOPER" in shell.text("account", "list")
    assert shell.json("account", "show", "eve")["accountID"] == made["accountID"]
    assert "is disabled" in shell.text("account", "disable", "eve")
    assert [row["username"] for row in shell.json("account", "list", "--state", "disabled")] == [
        "eve"
    ]
    shell("account", "enable", made["accountID"])
    given = shell("account", "password", "eve", "--password", "-", stdin=b"battery staple\n")
    assert b"battery" not in given.stdout
    shell("login", "--username", "eve", "--password-stdin", stdin=b"battery staple\n")
    assert "NoAdminPermission" in shell.fails("account", "list", code=4)
    assert "NoAdminPermission" in shell.fails("audit", code=4)
    shell("login", "--password-stdin", stdin=b"correct horse\n")
    assert "LastAdministrator" in shell.fails("account", "disable", "admin")
    shell("account", "delete", "eve", "--yes")
    assert "did you mean" in shell.fails("account", "show", "adminn")
    rows = shell.json("audit", "--account", "admin", "-n", "1000")
    operations = {row["operation"] for row in rows}
    assert operations >= {"DisableAccount", "EnableAccount", "RemoveAccount"}
    assert "RemoveAccount" in shell.text("audit", "--operation", "RemoveAccount", "-n", "5")
    assert shell.json("audit", "--path", "/nowhere") == []
