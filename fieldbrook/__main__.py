"""`python -m fieldbrook`: the command line."""

import sys
from pathlib import Path

# `python -m` puts the current folder first: unless that is where we are, what lies there is
# not to be imported in the place of a library.
if not sys.flags.safe_path and Path.cwd() != Path(__file__).parent.parent:
    sys.path.pop(0)

from fieldbrook.cli.main import main

main()
