"""`python -m fieldbrook`: the command line."""

from fieldbrook.cli import main

main()
