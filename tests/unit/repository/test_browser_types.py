"""The types with which the dashboard's modules are checked."""

from __future__ import annotations

import importlib
import re
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


REQUESTS = """\
/**
 * @param {import('TYPES').Asks<'GET', {}>} get @param {import('TYPES').Sends<'PUT', {}>} put
 * @param {import('TYPES').Calls<{}>} call @param {string} name
 * @param {'chain_tx' | 'contract_log'} kind
 */
export async function ask(get, put, call, name, kind) {
  const path = /** @type {const} */ (`/monitor/x/${name}/${kind}`);
  (await get(`/project/x/${name}/data`)).description;
  (await get(`/project/x/${name}/data`)).summary; // wrong
  (await get('/project/datalist', { size: '' })).data[0].envs.env;
  (await get('/project/datalist', { length: 3 })).data; // wrong
  (await get(`${path}/datalist`)).data[0].lag;
  (await get(`${path}/datalist`)).data[0].delay; // wrong
  await get(`/nothing/${name}`); // wrong
  await put(`/deploy/${name}/STOP`);
  await put('/login', { username: name, password: name });
  await put('/login', { username: name, pin: name }); // wrong
  await put('/login'); // wrong
  await call('POST', '/logout');
  await call('POST', '/log_out'); // wrong
}
"""


def test_what_a_request_sends_and_reads_is_that_of_its_route(tmp_path: Path) -> None:
    require_tool("npm")
    compiler = importlib.import_module("browser_types").typescript()
    module = tmp_path / "module.js"
    module.write_text(REQUESTS.replace("TYPES", str(ROOT / "dashboard" / "api.d.ts")))
    flags = ("--noEmit", "--allowJs", "--checkJs", "--strict", "--target", "es2022")
    checked = subprocess.run(
        [str(compiler), *flags, str(module)], capture_output=True, check=False, text=True
    )
    found = {
        int(line) for line in re.findall(r"^[^\n(]+\((\d+),\d+\): ", checked.stdout, re.MULTILINE)
    }
    wrong = {n for n, line in enumerate(REQUESTS.splitlines(), 1) if line.endswith("// wrong")}
    assert found == wrong, checked.stdout
