"""Commands run in this process, and the one sentence with which they refuse a mistake."""

from collections.abc import Callable

from shortlist.cli import main


def command(name: str) -> tuple[Callable[..., tuple[int, str, str]], Callable[..., str]]:
    """Two functions of ``capsys`` and the arguments of a command: what it gives, and how it refuses them."""

    def run(capsys, *arguments: str) -> tuple[int, str, str]:
        try:
            code = main([name, *arguments])
        except SystemExit as error:  # Help ends so.
            code = int(str(error.code or 0))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    def refused(capsys, *arguments: str) -> str:
        code, out, err = run(capsys, *arguments)
        assert (code, out) == (2, "")
        assert err.startswith("shortlist: ")
        assert err.endswith(".\n")
        assert err.count("\n") == 1
        return err.removeprefix("shortlist: ").rstrip("\n")

    return run, refused
