"""The command line as a whole: quick help, tab completion, exit codes, and bugs that keep their traceback."""

import io
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

import shortlist
from shortlist.audit import nearest_point
from shortlist.cli import main, make_parser
from shortlist.cli.calibrate import _RULES
from shortlist.cli.memory import _DTYPES, _OPTIMIZERS
from shortlist.cli.options import FILE_SUFFIXES
from shortlist.cli.predict import _FORMATS
from shortlist.errors import InputError
from shortlist.fit_options import FitOptions
from tests.python_process import ROOT, run_python

COMMANDS = sorted(make_parser()._subparsers._group_actions[0].choices)
HEAVY = ("torch", "numpy", "numba", "scipy", "lightning", "rich", "yaml")


def test_help_version_and_completion_import_nothing_heavy():
    """One process prints everything, and then names the heavy modules that it has loaded."""
    lines = [["--version"], ["--help"], ["data", "inspect", "--help"], *([name, "--help"] for name in COMMANDS)]
    code = f"""
import sys
from shortlist.cli import main
for arguments in {lines!r}:
    try:
        main(arguments)
    except SystemExit as end:
        assert not end.code
assert main(["--print-completion", "bash"]) == 0
loaded = [name for name in {HEAVY!r} if name in sys.modules]
sys.stderr.write(",".join(loaded))
"""
    done = run_python("-c", code)
    assert done.stderr == ""
    assert f"shortlist {shortlist.__version__}\n" in done.stdout
    assert all(f"shortlist {name}" in done.stdout for name in COMMANDS)
    assert done.stdout.count("examples:") >= len(COMMANDS)
    assert done.stdout.count("exit code:") == len(COMMANDS) + 1
    assert "complete" in done.stdout


def test_help_shows_every_training_option_with_its_description(capsys):
    with pytest.raises(SystemExit):
        main(["fit", "--help"])
    out = " ".join(capsys.readouterr().out.split())
    for field in fields(FitOptions):
        assert f"--{field.name.replace('_', '-')}" in out
    assert "(default 128, 256 for text, 32 for hf encoders; paper: 64)" in out
    assert "(default auto)" in out


def test_choices_that_help_lists_are_those_of_the_library():
    from shortlist import memory
    from shortlist.predict import RULES
    from shortlist.predict.files.set_files import FORMATS
    from shortlist.predict.scores import SCORE_FILES

    assert tuple(RULES) == _RULES
    assert tuple(FILE_SUFFIXES.split(", ")) == SCORE_FILES
    assert _FORMATS == FORMATS
    assert set(_OPTIMIZERS) == set(memory.OPTIMIZERS)
    assert set(_DTYPES) == set(memory._BYTES)


@pytest.fixture
def failing(monkeypatch):
    """Let ``shortlist losses`` fail with an error."""

    def fail_with(error: BaseException) -> None:
        def run(options):
            raise error

        monkeypatch.setattr("shortlist.cli.losses.run", run)

    return fail_with


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (InputError("`a.csv` is empty."), 2, "shortlist: `a.csv` is empty.\n"),
        (FileNotFoundError(2, "No such file", "a.csv"), 2, "shortlist: `a.csv`: No such file.\n"),
        (OSError(28, "No space left on device"), 2, "shortlist: No space left on device.\n"),
        (MemoryError(), 2, "shortlist: not enough memory; use smaller batches, or fewer jobs"),
        (RuntimeError("can't allocate memory: 8 bytes"), 2, "shortlist: not enough memory; use smaller"),
        (KeyboardInterrupt(), 130, "\nshortlist: interrupted.\n"),
        (KeyboardInterrupt("5 rows are kept"), 130, "\nshortlist: interrupted; 5 rows are kept\n"),
    ],
)
def test_what_the_user_can_mend_is_one_sentence_and_debug_shows_the_traceback(failing, capsys, error, code, sentence):
    failing(error)
    assert main(["losses"]) == code
    assert capsys.readouterr().err.startswith(sentence)
    for arguments in (["--debug", "losses"], ["losses", "--debug"]):
        assert main(arguments) == code
        err = capsys.readouterr().err
        assert err.startswith("Traceback")
        assert sentence.strip() in err


@pytest.mark.parametrize("error", [ValueError("bug"), TypeError("bug"), ImportError("bug"), RuntimeError("bug")])
def test_a_bug_keeps_its_traceback(failing, error):
    failing(error)
    with pytest.raises(type(error), match="bug"):
        main(["losses"])


def test_a_terminal_without_the_characters_of_a_table_gets_question_marks(monkeypatch):
    buffer = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(buffer, encoding="ascii"))
    monkeypatch.setattr("shortlist.cli.losses.run", lambda options: sys.stdout.write("│ é\n") and 0)
    assert main(["losses"]) == 0
    assert buffer.getvalue() == b"? ?\n"


def test_a_deprecation_is_one_line():
    code = """
import sys, warnings
from shortlist.cli import losses, main
def run(options):
    warnings.warn_explicit("Old is now new.", DeprecationWarning, "factory.py", 1, module="shortlist.factory")
    return 0
losses.run, sys.argv = run, ["shortlist", "losses"]
sys.exit(main())
"""
    done = run_python("-c", code)
    assert done.stderr == "shortlist: DeprecationWarning: Old is now new.\n"


@pytest.mark.parametrize("module", ["argparse", "shortlist.cli.compare", "torch", "rich.progress"])
def test_an_interrupt_during_an_import_is_one_line(module, tmp_path):
    """Libraries turn the exception into others, or drop it, so that it must not be raised there."""
    code = f"""
import signal, sys
sys.argv = ["shortlist", "fit", "digits", "--epochs", "1", "--tune", "0", "--output", {str(tmp_path / "model")!r}]
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            signal.raise_signal(signal.SIGINT)
sys.modules.pop("argparse", None)
sys.meta_path.insert(0, Finder())
from shortlist.__main__ import main
sys.exit(main())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "\nshortlist: interrupted.\n")


def test_an_interrupt_in_a_destructor_and_at_exit_is_not_lost():
    code = """
import atexit, signal, sys
from shortlist import __main__, cli
class Dying:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)
def run():
    Dying()
    raise SystemExit("went on")
def leave():
    atexit.register(signal.raise_signal, signal.SIGINT)
    return 0
cli.main = {"destructor": run, "exit": leave}[sys.argv[1]]
sys.exit(__main__.main())
"""
    for moment in ("destructor", "exit"):
        done = subprocess.run([sys.executable, "-c", code, moment], capture_output=True, text=True, cwd=ROOT)
        assert (done.returncode, done.stderr) == (130, "\nshortlist: interrupted.\n"), moment


@pytest.mark.parametrize("output", [(), ("--output", "report.json")], ids=["lost", "kept"])
def test_an_interrupt_within_compiled_code_is_one_line(capsys, monkeypatch, tmp_path, output):
    """numba leaves the exception set and returns, which Python reports as a SystemError with this cause."""
    monkeypatch.chdir(tmp_path)
    np.savez("layer.npz", weight=np.eye(2))
    Path("sets.txt").write_text("0\n")

    def interrupted(*_):
        raise SystemError("returned a result with an exception set") from KeyboardInterrupt()

    monkeypatch.setattr(nearest_point, "_advance", interrupted)
    arguments = ["audit", "layer.npz", "sets.txt", "--jobs", "1", *output]
    assert main(arguments) == 130
    rest = f"; to go on: {' '.join(['shortlist', *arguments])}" if output else "."
    assert capsys.readouterr().err == f"\nshortlist: interrupted{rest}\n"
