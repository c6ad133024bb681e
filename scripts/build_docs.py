"""Build the documentation site from docs/: scripts/docs [--output FOLDER].

Zensical makes the pages. This script prepares Zensical's input and checks its output:

* pages outside docs/ (examples, CONTRIBUTING.md and others) become pages of the site; links to
  files that are not part of the site become plain text;
* Mermaid diagrams become SVG inside their page, in colours that follow the light or dark scheme;
* `manifest.json` lists the files of the site and the hashes of the inline scripts. The node serves
  only the files in the manifest (`gateway/http/site/documentation.py`).

Any warning of Zensical, such as a broken link, fails the build.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import html
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
OUTPUT = ROOT / "fieldbrook" / "site"
MANIFEST = "manifest.json"

_PROJECT_PAGES = {
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "CHANGELOG.md": "project/changelog.md",
    "README.md": "index.md",
    "benchmarks/README.md": "project/benchmarks.md",
    "docs/decisions": "decisions/index.md",
}
_NOT_PUBLISHED = {"site.yml"}
# Pages with one wide table, which uses the space of the list of headings.
_WIDE = {f"reference/{name}.md" for name in ("abi", "errors", "http", "metrics", "settings")}
_GENERATOR_LIMIT_S = 240

_FENCE = re.compile(
    r"^(?P<indent> *)(?P<mark>```|~~~).*?^(?P=indent)(?P=mark) *$", re.MULTILINE | re.DOTALL
)
_DIAGRAM = re.compile(
    r"^```mermaid(?: (?P<caption>[^\n]+))?\n(?P<source>.*?)^```$", re.MULTILINE | re.DOTALL
)
_LINK = re.compile(r"(?<!!)\[(?P<text>(?:[^\[\]\n]|\[[^\[\]\n]*\])*)\]\((?P<target>[^()\s]+)\)")
_SCRIPT = re.compile(r"<script(?P<attributes>[^>]*)>(?P<text>.*?)</script>", re.DOTALL)
_ID = re.compile(r'\bid="([^"]*)"')
# A cell that contains only a name: of a setting in a file, a state or an error.
_NAME_CELL = re.compile(r"<td><code>(?P<name>[a-zA-Z]*[a-z][a-zA-Z0-9_]*)</code></td>")
_CANONICAL = re.compile(r'<link rel="canonical"[^>]*>')


class BuildError(Exception):
    """The site cannot be built; the text has the reason."""


def main(arguments: list[str]) -> int:
    """Build the site; the exit code is 1 if this fails."""
    parser = argparse.ArgumentParser(prog="scripts/docs", description="Build the documentation.")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="the folder of the site")
    output: Path = parser.parse_args(arguments).output.resolve()
    try:
        build(output)
    except BuildError as error:
        print(f"scripts/docs: {error}", file=sys.stderr)
        return 1
    pages = sum(1 for _ in output.rglob("*.html"))
    print(f"built {pages} pages in {output}")
    return 0


def build(output: Path) -> None:
    """Build the site in a temporary folder, then replace `output` by it."""
    with tempfile.TemporaryDirectory(prefix="fieldbrook-docs-") as folder:
        source, site = Path(folder) / "docs", Path(folder) / "site"
        sources = published()
        for path, name in sources.items():
            prepare(path, name, source, sources)
        (source / "decisions" / "index.md").write_text(decisions_page(source))
        config = configuration(source, site)
        generate(config)
        finish(site)
        replace(output, site)


# ---------------------------------------------------------------- what Zensical reads


def published() -> dict[Path, str]:
    """Return the files of the repository that the site shows, and their places in the site."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "docs"]
    command += ["examples", *(n for n in _PROJECT_PAGES if n.endswith(".md"))]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
        names = [name.decode() for name in listed.split(b"\0") if name]
    except (OSError, subprocess.CalledProcessError):  # a source distribution
        folders = (ROOT / "docs", ROOT / "examples")
        paths = [p for folder in folders for p in folder.rglob("*") if p.is_file()]
        names = [p.relative_to(ROOT).as_posix() for p in paths]
        names += [n for n in _PROJECT_PAGES if n.endswith(".md")]
    return {
        ROOT / name: place
        for name in sorted(names)
        if (ROOT / name).is_file() and (place := _place(name)) and name != "README.md"
    }


def _place(name: str) -> str:
    """Return the place of a repository's file in the site; "" if it is not published."""
    if name in _PROJECT_PAGES:
        return _PROJECT_PAGES[name]
    folder, _, rest = name.partition("/")
    if folder == "docs" and rest not in _NOT_PUBLISHED:
        return rest
    if folder == "examples" and "/node_modules/" not in name:
        return re.sub(r"README\.md$", "index.md", name)
    return ""


def prepare(path: Path, name: str, source: Path, sources: dict[Path, str]) -> None:
    """Write one file into Zensical's input folder."""
    target = source / name
    target.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".md":
        text = with_diagrams(path.read_text("utf-8"), name)
        head = "---\nhide: [toc]\n---\n\n" if name in _WIDE else ""
        target.write_text(head + with_links(text, path, name, sources))
    else:
        shutil.copyfile(path, target)


def with_links(text: str, path: Path, name: str, sources: dict[Path, str]) -> str:
    """Change each relative link to its target's place in the site, or to plain text."""

    def replaced(match: re.Match[str]) -> str:
        target, hash_mark, heading = match["target"].partition("#")
        if not target or re.match(r"[a-z][a-z0-9+.-]*:", target):
            return match[0]
        file = Path(os.path.normpath(path.parent / target))
        relative = file.relative_to(ROOT).as_posix() if file.is_relative_to(ROOT) else ""
        place = sources.get(file) or _PROJECT_PAGES.get(relative)
        if place is None and file.is_dir():
            place = sources.get(file / "README.md") or sources.get(file / "index.md")
        if place is None:
            return match["text"]
        link = os.path.relpath(place, Path(name).parent)
        return f"[{match['text']}]({link}{hash_mark}{heading})"

    parts, at = [], 0
    for fence in _FENCE.finditer(text):
        parts += [_LINK.sub(replaced, text[at : fence.start()]), fence[0]]
        at = fence.end()
    return "".join((*parts, _LINK.sub(replaced, text[at:])))


def decisions_page(source: Path) -> str:
    """Return the page with the list of all decisions."""
    rows = [f"* [{title}]({path.name})" for path, title in decisions(source)]
    return "\n".join(
        (
            "# Decisions",
            "",
            "A page for each choice that others may ask about: its context, the decision and the",
            "consequences. A decision is not rewritten when it is replaced; a newer one says so.",
            "",
            *rows,
            "",
        )
    )


def decisions(source: Path) -> Iterator[tuple[Path, str]]:
    """Return the pages of decisions with their titles, in the order of their numbers."""
    for path in sorted((source / "decisions").glob("0*.md")):
        heading = path.read_text("utf-8").partition("\n")[0].removeprefix("# ")
        number, title = int(path.name[:4]), re.sub(r"^\d+[.:] ", "", heading)
        yield path, f"{number}. {title}"


def configuration(source: Path, site: Path) -> Path:
    """Write the configuration: docs/site.yml with the folders and the pages of decisions added."""
    text = (DOCS / "site.yml").read_text("utf-8")
    place = re.search(r"^( *)- decisions/\*\.md$", text, re.MULTILINE)
    if place is None:
        raise BuildError("docs/site.yml has no line `- decisions/*.md`")
    pages = "\n".join(f"{place[1]}- decisions/{path.name}" for path, _ in decisions(source))
    folders = f"docs_dir: {source.name}\nsite_dir: {site.name}\n"
    path = source.parent / "mkdocs.yml"
    path.write_text(folders + text.replace(place[0], pages))
    return path


# ---------------------------------------------------------------- diagrams

# Patterns of the colours that are set for the renderer, and the names with which docs/site.css
# defines them for the light and the dark scheme.
_COLOURS = {
    "#f1f5f0": "box",
    "#3b6e52": "line",
    "#1b2a20": "text",
    "#fafaf7": "group",
    "#b9c4bb": "border",
    "#fffdf0": "note",
    # Colours that Mermaid computes from these, or has by default.
    r"#000000|#000\b|#050508|#0b0b0b": "text",
    r"rgba\(250, 250, 247, 0\.5\)|rgba\(185,185,185,1\)": "group",
    r"hsl\(60, [\d.]+%, 87[\d.]*%\)": "border",
}
_THEME = {
    "theme": "base",
    "fontFamily": "sans-serif",
    "themeVariables": {
        "primaryColor": "#f1f5f0",
        "primaryTextColor": "#1b2a20",
        "primaryBorderColor": "#3b6e52",
        "lineColor": "#3b6e52",
        "textColor": "#1b2a20",
        "secondaryColor": "#fafaf7",
        "tertiaryColor": "#fafaf7",
        "tertiaryBorderColor": "#b9c4bb",
        "clusterBkg": "#fafaf7",
        "clusterBorder": "#b9c4bb",
        "edgeLabelBackground": "#fafaf7",
        "actorBkg": "#f1f5f0",
        "actorBorder": "#3b6e52",
        "actorTextColor": "#1b2a20",
        "actorLineColor": "#b9c4bb",
        "signalColor": "#3b6e52",
        "signalTextColor": "#1b2a20",
        "labelBoxBkgColor": "#f1f5f0",
        "labelBoxBorderColor": "#3b6e52",
        "labelTextColor": "#1b2a20",
        "loopTextColor": "#1b2a20",
        "noteBkgColor": "#fffdf0",
        "noteBorderColor": "#b9c4bb",
        "noteTextColor": "#1b2a20",
    },
}


def with_diagrams(text: str, name: str) -> str:
    """Replace each Mermaid block by a figure with its SVG; the caption is the block's title."""
    number = 0

    def replaced(match: re.Match[str]) -> str:
        nonlocal number
        number += 1
        caption = match["caption"]
        if not caption:
            raise BuildError(f"docs/{name}: a mermaid block needs a caption after `mermaid`")
        label = f"{Path(name).stem}-{number}"
        drawing = diagram(match["source"], label, caption)
        words = f"<figcaption>{html.escape(caption)}</figcaption>"
        return f'<figure class="diagram" markdown="0">{drawing}{words}</figure>\n'

    return _DIAGRAM.sub(replaced, text)


def diagram(source: str, label: str, caption: str) -> str:
    """Render one diagram as an SVG element on one line."""
    # Imported here, because the import is slow and most pages have no diagram. It has no type
    # hints.
    import mermaidx  # type: ignore[import-untyped]

    settings = json.dumps(_THEME)
    svg: str = mermaidx.render(f"%%{{init: {settings}}}%%\n{source}").svg()
    for colour, variable in _COLOURS.items():
        svg = re.sub(colour, f"var(--diagram-{variable})", svg, flags=re.IGNORECASE)
    identifier = re.search(r'<svg[^>]* id="([^"]+)"', svg)
    if identifier is None:
        raise BuildError(f"the renderer gave no SVG for {caption!r}")
    svg = svg.replace(identifier[1], f"diagram-{label}")
    svg = re.sub(r"<svg ", f'<svg aria-label="{html.escape(caption)}" ', svg, count=1)
    return re.sub(r"\s*\n\s*", " ", svg)


# ---------------------------------------------------------------- running Zensical


def generate(config: Path) -> None:
    """Run Zensical.

    Raises:
        BuildError: Zensical failed, or found a broken link.
    """
    command = [sys.executable, "-m", "zensical", "build", "--config-file", config.name]
    environment = {**os.environ, "NO_COLOR": "1"}
    try:
        done = subprocess.run(
            command,
            cwd=config.parent,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_GENERATOR_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise BuildError(f"zensical did not end within {_GENERATOR_LIMIT_S} s") from None
    output = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr)
    if done.returncode or re.search(r"\d+ issues? found", output):
        raise BuildError(f"zensical: {output}")


def finish(site: Path) -> None:
    """Remove files that the site does not need, and write its manifest."""
    for name in ("sitemap.xml", "sitemap.xml.gz", "objects.inv"):
        (site / name).unlink(missing_ok=True)
    scripts = set()
    for page in site.rglob("*.html"):
        text = with_row_ids(_CANONICAL.sub("", page.read_text("utf-8")))
        page.write_text(text, "utf-8")
        scripts |= {script_hash(m["text"]) for m in _SCRIPT.finditer(text) if _runs(m)}
    files = {
        path.relative_to(site).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(site.rglob("*"))
        if path.is_file()
    }
    manifest = {"files": files, "scripts": sorted(scripts)}
    (site / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")


def with_row_ids(page: str) -> str:
    """Give each row of a table an id: the name in its first cell that contains only a name.

    The dashboard links to the rows of health states, settings and errors.
    """
    known = set(_ID.findall(page))
    rows = page.split("<tr>")
    for at, row in enumerate(rows[1:], 1):
        found = _NAME_CELL.search(row)
        if found is not None and found["name"] not in known:
            known.add(found["name"])
            start, end = found.span()
            cell = f'<td id="{found["name"]}"><code>{found["name"]}</code></td>'
            rows[at] = row[:start] + cell + row[end:]
    return "<tr>".join(rows)


def _runs(script: re.Match[str]) -> bool:
    attributes = script["attributes"]
    return "src=" not in attributes and "application/json" not in attributes


def script_hash(text: str) -> str:
    """Return the source expression with which a Content-Security-Policy allows an inline script."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


def replace(output: Path, site: Path) -> None:
    """Replace the old site by the new one."""
    output.parent.mkdir(parents=True, exist_ok=True)
    draft = output.with_name(f".{output.name}-{os.getpid()}")
    shutil.rmtree(draft, ignore_errors=True)
    shutil.copytree(site, draft)
    old = output.with_name(f".{output.name}-{os.getpid()}-old")
    if output.exists():
        output.rename(old)
    draft.rename(output)
    shutil.rmtree(old, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
