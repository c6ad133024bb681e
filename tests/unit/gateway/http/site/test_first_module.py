"""The first module of the dashboard does the same when it is bundled with its imports."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from fieldbrook.core.errors import SettingsError
from fieldbrook.gateway.http.site.first_module import join
from tests.support.tools import require_tool

MODULES = {
    "app.js": """\
import { named, told as heard } from './core/one.js';
import { load } from './core/load.js';
import * as words from './words/en.js';
import './core/early.js';

heard.push('the page');
load('here').then(([later, part]) =>
  console.log(JSON.stringify([named(), words.hello('you'), heard, later.seen(), part.here])));
""",
    "core/one.js": """\
import { hello } from '../words/en.js';
import { list } from '../vendor/library.js';
import { listOf as three } from '../vendor/joined.js';

export const told = list();
export const numbers = three(1, 2);
export async function never() {
  told.push('never');
}
export function named() {
  return new Kind(hello('us')).name;
}
export class Kind {
  /** @param {string} name */
  constructor(name) {
    this.name = name;
  }
}
export const place = new URL('../styles/one.css', import.meta.url).pathname.split('/').slice(-2);
""",
    "core/load.js": """\
/** @returns {Promise<import('./one.js').Kind[]>} */
export const load = (name) =>
  Promise.all([import('../pages/later.js'), import(`../pages/parts/${name}.js`)]);
""",
    "core/early.js": """\
import { told } from './one.js';

told.push('early');
""",
    "words/en.js": "export const hello = (name) => `hello ${name}`;\n",
    "pages/later.js": """\
import { told as all, numbers, place } from '../core/one.js';
import { listOf, third } from '../vendor/joined.js';
import { list } from '../vendor/library.js';
import * as words from '../words/en.js';
import { here } from './parts/here.js';

all.push('later');
const more = listOf(third);
export const seen = () => [all.length, place, list().length, words.hello(here), numbers, more];
""",
    "pages/parts/here.js": """\
import { hello } from '../../words/en.js';

export const here = hello('here');
""",
    "vendor/joined.js": "var a=(...n)=>n,b$=3;export{a as listOf,b$ as third};\n",
    "vendor/library.js": "const made = [];\nexport { f as list };\nfunction f() { return made; }\n",
}


def output(folder: Path, modules: dict[str, str]) -> object:
    """Run the modules in a JavaScript engine; return their output."""
    for name, text in modules.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / "package.json").write_text('{"type": "module"}')
    command = [require_tool("node"), str(folder / "app.js")]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def test_the_joined_modules_do_what_they_did(tmp_path: Path) -> None:
    joined = join(MODULES, "app.js")
    assert sorted(joined) == [
        "app.js",
        "pages/later.js",
        "pages/parts/here.js",
        "vendor/library.js",
    ]
    assert joined["vendor/library.js"] == MODULES["vendor/library.js"]
    before = output(tmp_path / "before", MODULES)
    assert before == output(tmp_path / "after", joined)
    counted = [3, ["styles", "one.css"], 3, "hello hello here", [1, 2], [3]]
    told = ["early", "the page", "later"]
    assert before == ["hello us", "hello you", told, counted, "hello here"]


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("core/one.js", "import one from './early.js';\n", "import one from"),
        ("core/one.js", "export let changes = 1;\n", "export let"),
        ("core/one.js", "export default 1;\n", "export default"),
        ("core/one.js", "export * from './early.js';\n", r"export \*"),
        ("core/one.js", "const a = () => import('./early.js');\n", r"import\('\./early"),
        ("core/one.js", "const a = (name) => import(name);\n", r"import\(name"),
        ("pages/later.js", "const a = () => import('../core/one.js');\n", r"import\('\.\./core"),
        ("core/one.js", "import {\n  a,\n} from './early.js';\n", "import {"),
        ("core/one.js", "import './early.js'; import './late.js';\n", "import"),
        ("core/one.js", "import { a } from './one.js';\n", "core/one.js imports itself"),
        ("words/en.js", "import { a } from './none.js';\n", "words/en.js imports words/none.js"),
    ],
)
def test_a_module_that_cannot_be_joined_is_named(name: str, text: str, reason: str) -> None:
    with pytest.raises(SettingsError, match=reason) as caught:
        join({**MODULES, name: text}, "app.js")
    assert name in str(caught.value)
