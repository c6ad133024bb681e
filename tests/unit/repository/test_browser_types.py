"""The types that the dashboard's modules are checked with."""

from __future__ import annotations

import importlib
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.support.tools import require_tool

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def _scripts_are_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "scripts")


@pytest.fixture
def api_types(_scripts_are_importable: None) -> ModuleType:
    return importlib.import_module("api_types")


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({"type": "string"}, "string"),
        ({"type": "integer"}, "number"),
        ({"type": ["string", "null"]}, "string | null"),
        ({"enum": ["a", 1, None]}, '"a" | 1 | null'),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "string | null"),
        ({"type": "array", "items": {"$ref": "#/components/schemas/Row"}}, "Row[]"),
        ({"type": "array", "items": {"enum": ["a", "b"]}}, '("a" | "b")[]'),
        ({"type": "array", "prefixItems": [{"type": "string"}, {}]}, "[string, any]"),
        ({"type": "object"}, "Record<string, any>"),
        ({"type": "object", "additionalProperties": {"type": "number"}}, "Record<string, number>"),
        (
            {
                "type": "object",
                "properties": {"a": {"type": "string"}, "b-c": {}},
                "required": ["a"],
            },
            '{ a: string; "b-c"?: any }',
        ),
    ],
)
def test_a_schema_has_the_same_type_in_typescript(
    api_types: ModuleType, schema: dict[str, Any], kind: str
) -> None:
    assert api_types.type_of(schema) == kind


def test_a_schema_of_an_unknown_form_is_an_error(api_types: ModuleType) -> None:
    with pytest.raises(ValueError, match="file"):
        api_types.type_of({"type": "file"})


def test_a_misspelt_key_of_an_answer_is_found(tmp_path: Path) -> None:
    require_tool("npm")
    compiler = importlib.import_module("browser_types").typescript()
    module = tmp_path / "module.js"
    types = ROOT / "dashboard" / "api.d.ts"
    for key, known in (("name", True), ("nmae", False)):
        module.write_text(
            f"/** @param {{import('{types}').AnswerOf<'GET /project/{{projectName}}'>}} answer */\n"
            f"export const name = (answer) => answer.{key};\n"
        )
        checked = subprocess.run(
            [str(compiler), "--noEmit", "--allowJs", "--checkJs", "--strict", str(module)],
            capture_output=True,
            check=False,
            text=True,
        )
        assert (checked.returncode == 0) is known, checked.stdout
        assert ("does not exist" in checked.stdout) is not known
