"""The command line: ``shortlist COMMAND …``, one file per command."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from shortlist import __version__
from shortlist.cli import (
    audit,
    bench,
    calibrate,
    compare,
    data,
    evaluate,
    fit,
    losses,
    memory,
    predict,
    report,
    reproduce,
)

__all__ = ["main"]


class _Parser(argparse.ArgumentParser):
    """Says in one sentence what is wrong, and where help is."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; see `{self.prog} --help`.\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; a user's mistake is answered in one sentence, never a traceback."""
    parser = _Parser(prog="shortlist", description="Models that answer with a set of labels.")
    parser.add_argument("--version", action="version", version=f"shortlist {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=_Parser)
    audit.add_command(commands)
    bench.add_command(commands)
    calibrate.add_command(commands)
    compare.add_command(commands)
    data.add_command(commands)
    evaluate.add_command(commands)
    fit.add_command(commands)
    losses.add_command(commands)
    memory.add_command(commands)
    predict.add_command(commands)
    report.add_command(commands)
    reproduce.add_command(commands)
    options = parser.parse_args(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal without the characters of a table gets question marks, not an error after all the work.
        sys.stdout.reconfigure(errors="replace")
    try:
        code = options.run(options)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # Whoever read along has seen enough, as `head` does; Python must not say so once more when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        sys.stderr.write("\nshortlist: interrupted.\n")
        return 130
    except (ValueError, TypeError, ImportError, OSError, RecursionError) as error:
        sys.stderr.write(f"shortlist: {_sentence(error)}\n")
        return 2
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and "allocate" not in str(error):
            raise
        sys.stderr.write(
            "shortlist: there is not enough memory; smaller batches, or fewer jobs or processes need less.\n"
        )
        return 2


def _sentence(error: Exception) -> str:
    """What the system says of a file has a number in front and no full stop."""
    if isinstance(error, OSError) and error.strerror is not None:
        return f"{error.strerror}." if error.filename is None else f"`{error.filename}`: {error.strerror}."
    return str(error)
