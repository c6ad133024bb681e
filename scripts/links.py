#!/usr/bin/env python3
"""Check that every relative link in the Markdown files leads to a file of the repository."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).resolve().parent.parent
# [text](target) and [text](target "title"), not in a code span.
_LINK = re.compile(r"(?<!`)\[[^\]\n]*\]\(([^()\s]+(?:\([^()\s]*\))?)(?:\s+\"[^\"]*\")?\)")
_FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]+`")
_HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*#*$", re.MULTILINE)


def main() -> int:
    """Print one line per broken link; the exit code is 1 if there is any."""
    broken = [line for page in pages() for line in check(page)]
    print("\n".join(broken) or "all links lead somewhere")
    return 1 if broken else 0


def pages() -> list[Path]:
    """Return the Markdown files that git tracks or would add."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.md"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    paths = (ROOT / name.decode() for name in listed.split(b"\0") if name)
    return sorted(path for path in paths if path.is_file())


def check(page: Path) -> list[str]:
    """Return the broken links of one page: file and heading must exist."""
    text = _CODE.sub("", _FENCE.sub("", page.read_text("utf-8")))
    return [
        f"{page.relative_to(ROOT)}: broken link {link}"
        for link in _LINK.findall(text)
        if not re.match(r"[a-z][a-z0-9+.-]*:", link) and not leads_somewhere(page, link)
    ]


def leads_somewhere(page: Path, link: str) -> bool:
    """Return whether a relative link's file exists and has the heading that the link names."""
    name, _, heading = unquote(link).partition("#")
    target = (page.parent / name) if name else page
    if not target.exists():
        return False
    return not heading or target.suffix != ".md" or heading in anchors(target.read_text("utf-8"))


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, in the form of the usual renderers."""
    plain = (re.sub(r"[^\w\s-]", "", h).strip().lower() for h in _HEADING.findall(text))
    return {re.sub(r"\s", "-", heading) for heading in plain}


if __name__ == "__main__":
    sys.exit(main())
