"""The command line: ``shortlist COMMAND …``, one file per command.

Commands import torch and the rest of the library only when they run.
"""

from __future__ import annotations

import io
import json
import os
import shlex
import sys
import traceback
import warnings
from collections.abc import Sequence

from shortlist import __version__
from shortlist.cli import (
    audit,
    bench,
    calibrate,
    compare,
    data,
    doctor,
    evaluate,
    export,
    fit,
    losses,
    memory,
    predict,
    report,
    reproduce,
    rules,
    serve,
    update,
)
from shortlist.cli.console import plain_interrupts
from shortlist.cli.options import Parser, add_debug_option, normalize_arguments
from shortlist.errors import ChoiceError, InputError
from shortlist.extras import MissingExtraError, require

__all__ = ["main"]

_LONGEST_COMMAND = 1000
"""Characters of a command that is offered."""

_COMMANDS = (
    audit,
    bench,
    calibrate,
    compare,
    data,
    doctor,
    evaluate,
    export,
    fit,
    losses,
    memory,
    predict,
    report,
    reproduce,
    rules,
    serve,
    update,
)


def make_parser() -> Parser:
    """Return the parser of all commands, without importing torch."""
    parser = Parser(
        prog="shortlist",
        description="Models that predict sets of labels.",
        epilog="exit code: 0; 2 on errors, which are one sentence; 130 if interrupted; 1 if `audit` finds sets that "
        "cannot be output.",
    )
    parser.add_argument("--version", action="version", version=f"shortlist {__version__}")
    add_debug_option(parser)
    parser.add_argument(
        "--print-completion",
        metavar="SHELL",
        choices=("bash", "zsh", "tcsh"),
        help="print a tab-completion script for bash, zsh or tcsh; requires the package shtab",
    )
    commands = parser.add_subparsers(metavar="COMMAND", parser_class=Parser)
    for command in _COMMANDS:
        command.add_command(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    Mistakes that the user can fix are reported in one sentence, with exit code 2; an interruption in one line that
    names the command that goes on, if there is one, with exit code 130. A bug keeps its traceback, with exit code 1.
    """
    if arguments is None:
        arguments = sys.argv[1:]
        _show_deprecations()
    debug = "--debug" in arguments
    if isinstance(sys.stdout, io.TextIOWrapper):
        # If the terminal lacks a table's characters, print question marks instead of failing after all the work.
        sys.stdout.reconfigure(errors="replace")
    try:
        code = _run(arguments)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # The reader, such as `head`, closed the pipe; without this, Python would fail again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt as error:
        # Without a period after a command, which would be copied with it.
        _report(f"interrupted; {error}" if str(error) else "interrupted.", debug, before="\n")
        return 130
    except (InputError, MissingExtraError, OSError, MemoryError, RuntimeError) as error:
        sentence = _sentence(error)
        if sentence is None:
            raise
        _report(sentence, debug)
        if isinstance(error, ChoiceError):
            _offer(error, arguments)
        return 2


def _run(arguments: Sequence[str]) -> int:
    parser = make_parser()
    options, unknown = parser.parse_known_args(normalize_arguments(arguments))
    if unknown:
        # Of the command, not of the program, whose help does not list its options.
        program = getattr(options, "prog", parser.prog)
        raise InputError(f"unrecognized arguments: {shlex.join(unknown)}; see `{program} --help`.")
    if options.print_completion is not None:
        sys.stdout.write(require("shtab", extra="completion").complete(parser, options.print_completion) + "\n")
        return 0
    if "run" not in options:
        parser.error("a COMMAND must be given")
    options.command_line = list(arguments)
    with plain_interrupts():
        return options.run(options)


def _sentence(error: Exception) -> str | None:
    """Return the message for the user; None for a bug."""
    if isinstance(error, OSError):
        if error.strerror is None:
            return str(error) or None
        return f"{error.strerror}." if error.filename is None else f"`{error.filename}`: {error.strerror}."
    if isinstance(error, MissingExtraError):
        return error.for_commands()
    if isinstance(error, InputError):
        return str(error)
    # torch raises a RuntimeError when memory runs out.
    if isinstance(error, MemoryError) or "allocate" in str(error):
        return "not enough memory; use smaller batches, or fewer jobs or processes."
    return None


def _report(sentence: str, debug: bool, *, before: str = "") -> None:
    if debug:
        sys.stderr.write(traceback.format_exc())
    sys.stderr.write(f"{before}shortlist: {sentence}\n")


def _offer(error: ChoiceError, arguments: Sequence[str]) -> None:
    """Write the command that works with each choice of reader options."""
    for choice in error.choices:
        values = {name: value if isinstance(value, str) else json.dumps(value) for name, value in choice.items()}
        given = [word for name, value in values.items() for word in ("--reader", f"{name}={value}")]
        command = shlex.join(["shortlist", *arguments, *given])
        if len(command) <= _LONGEST_COMMAND:
            sys.stderr.write(f"  {command}\n")


def _show_deprecations() -> None:
    """Show this package's deprecation warnings, which Python hides by default, in one line each."""
    warnings.filterwarnings("default", category=DeprecationWarning, module=r"shortlist")
    warnings.formatwarning = lambda message, category, *_: f"shortlist: {category.__name__}: {message}\n"
