"""The check of dependencies finds what it has to find."""

from __future__ import annotations

import importlib.util
import json
from email.message import Message
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from packaging.requirements import Requirement

_PATH = Path(__file__).parents[3] / "scripts" / "audit.py"


@pytest.fixture(scope="module")
def audit() -> ModuleType:
    spec = importlib.util.spec_from_file_location("audit", _PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Installed:
    """A distribution with this metadata."""

    name = "thing"

    def __init__(self, version: str = "1.0", **fields: str | list[str]) -> None:
        self.version = version
        self.metadata = Message()
        for name, values in fields.items():
            for value in [values] if isinstance(values, str) else values:
                self.metadata[name.replace("_", "-")] = value


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a >=1, <2", ""),
        ("a ==1.2", ""),
        ("a ==1.*", ""),
        ("a", "no upper bound"),
        ("a >=1", "no upper bound"),
        ("a >=1, !=3", "no upper bound"),
        ("a >=1.0rc1, <2", "pre-release"),
        ("a ==2.0.dev3", "pre-release"),
    ],
)
def test_a_requirement_without_upper_bound_or_of_a_pre_release_is_found(
    audit: ModuleType, text: str, problem: str
) -> None:
    found = list(audit.requirement_problems(Requirement(text)))
    assert (problem in found[0]) if problem else not found


@pytest.mark.parametrize(
    ("fields", "allowed"),
    [
        ({"License_Expression": "MIT"}, True),
        ({"License_Expression": "GPL-3.0-only OR Apache-2.0"}, True),
        ({"License_Expression": "GPL-3.0-only AND Apache-2.0"}, False),
        ({"License_Expression": "(MIT OR Apache-2.0) AND BSD-3-Clause"}, True),
        ({"License_Expression": "(MIT OR Apache-2.0) AND GPL-3.0-only"}, False),
        ({"License_Expression": "Apache-2.0 WITH LLVM-exception"}, True),
        ({"Classifier": ["Topic :: Internet", "License :: OSI Approved :: MIT License"]}, True),
        ({"Classifier": "License :: OSI Approved :: GNU Affero General Public License v3"}, False),
        ({"License": "MIT"}, True),
        ({"License": "Commercial, ask us"}, False),
        ({}, False),
    ],
)
def test_a_licence_that_is_not_of_the_list_or_is_missing_is_found(
    audit: ModuleType, fields: dict[str, Any], allowed: bool
) -> None:
    assert (not list(audit.distribution_problems(Installed(**fields)))) == allowed


def test_an_installed_pre_release_is_found(audit: ModuleType) -> None:
    (found,) = audit.distribution_problems(Installed("2.0b1", License_Expression="MIT"))
    assert "2.0b1 is a pre-release" in found


def test_a_vulnerability_of_a_dependency_is_found_and_one_of_a_stranger_is_not(
    audit: ModuleType,
) -> None:
    entries = [
        {
            "name": "Some_Thing",
            "version": "1.0",
            "vulns": [{"id": "PYSEC-1", "fix_versions": ["1.1"]}, {"id": "PYSEC-2"}],
        },
        {"name": "stranger", "version": "1.0", "vulns": [{"id": "PYSEC-3"}]},
        {"name": "fine", "version": "1.0", "vulns": []},
    ]
    said = json.dumps({"dependencies": entries})
    assert audit.read_audit(said, "", ["some-thing", "fine"]) == (
        [
            "Some_Thing 1.0: PYSEC-1, fixed in 1.1",
            "Some_Thing 1.0: PYSEC-2, fixed in no release",
        ],
        "",
    )


def test_a_service_that_cannot_be_reached_is_said_and_is_no_finding(audit: ModuleType) -> None:
    complaint = "Traceback ...\nConnectionError: pypi.org\n"
    assert audit.read_audit("", complaint, []) == ([], "ConnectionError: pypi.org")
    assert audit.read_audit("", "", []).not_consulted


def test_dependencies_that_the_service_does_not_know_are_not_taken_for_safe(
    audit: ModuleType,
) -> None:
    entries = [{"name": "a", "skip_reason": "not found"}, {"name": "b", "vulns": []}]
    said = json.dumps({"dependencies": entries})
    assert audit.read_audit(said, "", ["a", "b"]) == ([], "of 1 of 2: not found")
