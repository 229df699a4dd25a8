"""`make faults`: disturb every command at random moments, let it go on, and compare the result with an undisturbed one.

Nothing that was finished may be lost, numbers must be equal, and what went wrong must be one sentence. Prints a line
per command and fault, and every failure with the seed that repeats it.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from shortlist.formatting import format_duration
from tests.faults.commands import COMMANDS, Command, import_commands, write_data

# Seconds; every command here takes a few.
_PATIENCE = 300
_IMPORTS = 5
# One moment in so many is of a fresh Python, the others of a copy of one that has imported everything.
_FRESH = 5
_PROGRESS = re.compile(
    r"(training|tuning|comparing|auditing|predicting|reproducing|\[\d+/\d+\]|Every row|[\w-]+: [\d.]+ of \d+ \w+)"
)
_CLOCK = Path(__file__).parent / "clock"


class Ended(NamedTuple):
    """How a command ended: exit code, and what it wrote on standard error besides its progress."""

    code: int
    lines: list[str]

    def problem(self, codes: tuple[int, ...], pattern: str) -> str:
        """What is wrong with an ending that should have one of these codes and, unless it succeeded, one line."""
        if self.code not in codes:
            return f"exit code {self.code}: {' | '.join(self.lines[-3:])}"
        shown = "\n".join(self.lines)
        if shown and not re.fullmatch(pattern, shown):
            return f"not one sentence: {shown[-600:]}"
        return ""


def end(process: subprocess.Popen[str]) -> Ended:
    """Wait for a command; one that hangs is killed, and its code is 999."""
    try:
        _, shown = process.communicate(timeout=_PATIENCE)
        code = process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        try:
            _, shown = process.communicate(timeout=_PATIENCE)
        except subprocess.TimeoutExpired:  # A process that left the group has standard error open.
            shown = "it left processes behind"
        code = 999
    return Ended(code, [line for line in shown.splitlines() if line.strip() and not _PROGRESS.match(line)])


class Trial(NamedTuple):
    """One disturbance: of which command, in which folder, at which moment in seconds, and in a fresh Python or not."""

    command: Command
    folder: Path
    moment: float
    fresh: bool
    draw: random.Random

    def start(self, *more: str, **environment: str) -> subprocess.Popen[str]:
        """Start the command in its folder."""
        return self.command.start(self.folder, *more, fresh=self.fresh, **environment)


_SENTENCE = r"shortlist: [^\n]+"
_INTERRUPTED = r"shortlist: interrupted[^\n]*"


def signal_group(trial: Trial, number: int) -> tuple[Ended, bool]:
    """Send a signal to all processes of a command; also whether it was still running."""
    process = trial.start()
    time.sleep(trial.moment)
    running = process.poll() is None
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)
    return end(process), running


def kill(trial: Trial) -> str:
    """SIGKILL; nothing can be said, so only going on is checked."""
    signal_group(trial, signal.SIGKILL)
    return ""


def interrupt(trial: Trial) -> str:
    """Ctrl-C: one line and exit code 130, unless the command had ended."""
    ended, running = signal_group(trial, signal.SIGINT)
    # Python itself may be interrupted before it runs a line of ours.
    unborn = ended.code == -signal.SIGINT and not ended.lines
    if unborn or (trial.moment < 0.2 and trial.fresh and "shortlist" not in "".join(ended.lines)):
        return ""
    return ended.problem((130, *trial.command.codes) if running else trial.command.codes, _INTERRUPTED)


def full_disk(trial: Trial) -> str:
    """A tmpfs of random size: success or one sentence; more room comes before the command goes on."""
    (trial.folder / "out").mkdir()
    size = int(2 ** trial.draw.uniform(12, 22))
    mount(trial.folder / "out", f"size={size}")
    ended = end(trial.start())
    mount(trial.folder / "out", "remount,size=1g")
    return ended.problem((2, *trial.command.codes), _SENTENCE)


def read_only(trial: Trial) -> str:
    """A folder that becomes read-only while the command runs."""
    (trial.folder / "out").mkdir()
    mount(trial.folder / "out", "size=1g")
    process = trial.start()
    time.sleep(trial.moment)
    # Fails while a file is open for writing, as on a real disk.
    subprocess.run(["mount", "-o", "remount,ro", str(trial.folder / "out")], capture_output=True)
    ended = end(process)
    mount(trial.folder / "out", "remount,rw")
    return ended.problem((2, *trial.command.codes), _SENTENCE)


def lost_worker(trial: Trial) -> str:
    """One process that the command started is killed: its work is repeated, or one sentence says what to do."""
    process = trial.start(*trial.command.parallel)
    time.sleep(trial.moment)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    with suppress(OSError):
        workers = [int(child) for child in children.read_text().split()]
        if workers:
            os.kill(trial.draw.choice(workers), signal.SIGKILL)
    return end(process).problem((2, *trial.command.codes), _SENTENCE)


def two_processes(trial: Trial) -> str:
    """A second process on the same folder is refused, or does the same work."""
    first = trial.start()
    time.sleep(trial.moment)
    second = end(trial.start())
    problem = end(first).problem(trial.command.codes, _SENTENCE)
    return problem or second.problem((2, *trial.command.codes), _SENTENCE)


def clock_set_back(trial: Trial) -> str:
    """The clock jumps back by a day while the command runs."""
    path = os.pathsep.join([str(_CLOCK), str(Path(__file__).parents[2])])
    ended = end(trial.start(PYTHONPATH=path, CLOCK_JUMPS_AFTER=str(trial.moment)))
    return ended.problem(trial.command.codes, _SENTENCE)


FAULTS: dict[str, Callable[[Trial], str]] = {
    each.__name__: each for each in (kill, interrupt, full_disk, read_only, lost_worker, two_processes, clock_set_back)
}


def mount(folder: Path, options: str) -> None:
    """Mount or remount a tmpfs."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], check=True, capture_output=True)


def can_mount() -> bool:
    """Whether this process may mount a tmpfs."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            mount(Path(folder), "size=64k")
        except (subprocess.CalledProcessError, FileNotFoundError):
            return False
        subprocess.run(["umount", folder], check=True)
        return True


def undisturbed(command: Command, top: Path, *more: str) -> tuple[object, float]:
    """The result of a command that is left alone, and how many seconds it takes."""
    began, folder = time.monotonic(), Path(tempfile.mkdtemp(dir=top))
    ended = end(command.start(folder, *more))
    if ended.code not in command.codes:
        raise RuntimeError(f"{command.name} fails undisturbed: {ended}")
    return command.result(folder), time.monotonic() - began


def disturbed(command: Command, fault: str, top: Path, wanted: object, seconds: float, seed: int) -> str:
    """Disturb a command once and let it go on; what is wrong, or nothing."""
    # A loss may leave work to a command without workers, which starts sooner.
    more = command.parallel if fault == "lost_worker" and command.sums_differ else ()
    draw = random.Random(f"{command.name} {fault} {seed}")
    folder = Path(tempfile.mkdtemp(dir=top))
    # A fresh Python mostly imports, and is disturbed there too.
    fresh = seed % _FRESH == 0 or fault == "lost_worker"
    imports = _IMPORTS if fresh and fault != "lost_worker" else 0  # those of workers are among the seconds
    trial = Trial(command, folder, draw.uniform(0.1 if fresh else 0.0, seconds + imports), fresh, draw)
    try:
        problem = FAULTS[fault](trial)
        if problem:
            return problem
        # A process that was killed may have left others, which end with it, but not at once.
        again = end(command.start(folder, *more))
        for _ in range(20):
            if "another process" not in "".join(again.lines):
                break
            time.sleep(0.5)
            again = end(command.start(folder, *more))
        problem = again.problem(command.codes, _SENTENCE)
        if problem:
            return f"does not go on: {problem}"
        return "" if command.result(folder) == wanted else "the result differs"
    finally:
        subprocess.run(["umount", "-l", str(folder / "out")], capture_output=True)
        shutil.rmtree(folder, ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--moments", type=int, default=50, help="per command, over all faults (default 50)")
    parser.add_argument("--seed", type=int, default=0, help="of the first moment (default 0)")
    parser.add_argument("--commands", nargs="*", default=list(COMMANDS), choices=list(COMMANDS))
    parser.add_argument("--faults", nargs="*", default=list(FAULTS), choices=list(FAULTS))
    options = parser.parse_args()
    say = sys.stdout.write
    if not can_mount():
        say("full_disk and read_only are skipped: this process may not mount a tmpfs.\n")
        options.faults = [fault for fault in options.faults if fault not in ("full_disk", "read_only")]
    failures = total = 0
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder)
        write_data(top / "data")
        import_commands()
        for command in (COMMANDS[name] for name in options.commands):
            alone = undisturbed(command, top)
            for position, fault in enumerate(options.faults):
                if fault == "lost_worker" and not command.parallel:
                    continue
                done = wrong = 0
                began = time.monotonic()
                wanted, seconds = alone
                if fault == "lost_worker":
                    with_workers, seconds = undisturbed(command, top, *command.parallel)
                    wanted = with_workers if command.sums_differ else wanted
                for seed in range(options.seed + position, options.seed + options.moments, len(options.faults)):
                    problem = disturbed(command, fault, top, wanted, seconds, seed)
                    done, wrong = done + 1, wrong + bool(problem)
                    if problem:
                        say(f"  {command.name} {fault} --seed {seed}: {problem}\n")
                took = format_duration(time.monotonic() - began)
                say(f"{command.name} {fault}: {done} moments, {wrong} failures, {took}\n")
                sys.stdout.flush()
                failures, total = failures + wrong, total + done
    say(f"{total} moments, {failures} failures\n")
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
