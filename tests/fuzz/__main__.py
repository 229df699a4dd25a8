"""`make fuzz`: fuzz parsers, documents, operators, metrics, rules and audits for some minutes, from where it ended.

Prints calls, failures and seeds. Failing files are kept in the folder of the run; put them into ``tests/fuzz/corpus``,
whose files `make test` reads, once they are mended.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.audit.reports import checked_audit
from tests.fuzz import operators
from tests.fuzz.documents import document_failure
from tests.fuzz.layers import adversarial_case
from tests.fuzz.metrics_and_rules import metric_failure, rule_failure
from tests.fuzz.record import Record

# Shares of the time.
_SHARES = {"parsers": 0.4, "documents": 0.1, "operators": 0.2, "metrics": 0.08, "rules": 0.1, "audits": 0.12}


def fuzz_seeds(record: Record, check: Callable[[int], str], seconds: float, seed: int) -> None:
    """Check one seed after the other until the time is up."""
    end = time.monotonic() + seconds
    record.next_seed = seed if record.next_seed is None else record.next_seed
    while time.monotonic() < end:
        problem = check(record.next_seed)
        if problem:
            record.failures.setdefault(f"seed {record.next_seed}", problem[-2000:])
        record.calls, record.next_seed = record.calls + 1, record.next_seed + 1
    record.save()


def audit_failure(seed: int) -> str:
    """Audit an adversarial layer and check everything in exact arithmetic."""
    try:
        undecided = checked_audit(adversarial_case(seed), radius=seed % 2 == 0).counts()["undecided"]
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return f"{undecided} sets are undecided" if undecided else ""


_CHECKS = {
    "documents": document_failure,
    "operators": operators.failure,
    "metrics": metric_failure,
    "rules": rule_failure,
    "audits": audit_failure,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10, help="default 10")
    parser.add_argument("--seed", type=int, default=0, help="of the first run in the folder (default 0)")
    parser.add_argument("--folder", type=Path, default=Path("out/fuzz"), help="of records and corpus; runs go on in it")
    parser.add_argument("--kinds", nargs="*", default=list(_SHARES), choices=list(_SHARES))
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    total, failures = Counter[str](), 0
    for kind in options.kinds:
        path = options.folder / f"{kind}.json"
        seconds = 60 * options.minutes * _SHARES[kind] / sum(_SHARES[each] for each in options.kinds)
        arguments: dict[str, Any] = {"seconds": seconds, "seed": options.seed}
        if kind == "parsers":
            # In a process of its own, whose modules are instrumented, and which libFuzzer ends.
            command = [sys.executable, "-m", "tests.fuzz.guided", str(options.folder), str(seconds), str(options.seed)]
            failures += subprocess.run(command, env={**os.environ, "NUMBA_DISABLE_JIT": "1"}).returncode != 0
        else:
            record = Record(path)
            fuzz_seeds(record, _CHECKS[kind], **arguments)
            record.show(kind)
        record = Record(path)
        total[kind], failures = record.calls, failures + len(record.failures)
    sys.stdout.write(f"{sum(total.values())} calls in all runs, {failures} failures, seed {options.seed}\n")
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
