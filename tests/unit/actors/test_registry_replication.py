"""Which modules a command of the registry names: all hosts need them before the command."""

from __future__ import annotations

from fieldbrook.actors.registry_replication import digests_in

ONE, TWO = "ab" * 32, "cd" * 32


def module(sha256: str) -> list[object]:
    return ["a.wasm", sha256, "0" * 32, 7, ["start"], 9]


def test_a_new_applet_has_its_module_as_several_arguments() -> None:
    assert digests_in({"project_id": 1, "sha256": ONE, "md5": "0" * 32}) == [ONE]


def test_a_changed_applet_may_have_a_module() -> None:
    assert digests_in({"applet_id": 1, "module": module(ONE)}) == [ONE]
    assert digests_in({"applet_id": 1, "module": None}) == []


def test_an_imported_project_has_some() -> None:
    assert digests_in({"modules": [module(ONE), module(TWO)]}) == [ONE, TWO]
    assert digests_in({"modules": []}) == []


def test_other_commands_have_none() -> None:
    assert digests_in({"name": ONE, "sha256": "Z" * 64, "md5": 5}) == []
