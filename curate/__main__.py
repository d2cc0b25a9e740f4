"""``python -m curate`` is the command `curate`."""

from curate.cli import main

main()
