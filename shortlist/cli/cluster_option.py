"""``--cluster``: where the tasks of a command run."""

from __future__ import annotations

from typing import Any


def add_cluster_option(parser: Any, needs: str) -> None:
    """Add the option to the parser of a command.

    Args:
        parser: of argparse or jsonargparse.
        needs: what workers need besides this release of shortlist.
    """
    parser.add_argument(
        "--cluster",
        metavar="WHERE",
        default="local",
        help="local (default), dask://HOST:PORT or ray://HOST:PORT; dask:// and ray:// start one on this machine. All "
        "workers are used unless --jobs says fewer; what is lost with a worker is done again. Workers need the same "
        f"release of shortlist and {needs}",
    )
