"""Draw the README's picture: what `curate show` prints for one pair of a finished run.

    python benchmarks/picture.py OUTPUT ID

Only pairs of `torch_ops` are drawn, whose code is this project's own.
"""

import io
import sys
from pathlib import Path

from rich.console import Console

from curate import api
from curate.cli.console import side_by_side


def main() -> None:
    """Write ``docs/pair.svg``."""
    (row,) = api.show(sys.argv[2], output=Path(sys.argv[1]))
    if row["origin"]["source"] != "torch_ops":
        raise SystemExit("only code of this project's own is drawn")
    console = Console(record=True, width=150, file=io.StringIO())
    console.print(side_by_side(row))
    docs = Path(__file__).resolve().parents[1] / "docs"
    console.save_svg(str(docs / "pair.svg"), title=f"curate show {row['id'][:6]}")


if __name__ == "__main__":
    main()
