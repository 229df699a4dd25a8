"""Processes that would go on without their caller end."""

import os
import time

import pytest

from shortlist.cluster import ending


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that have parents")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_process_ends_when_its_caller_was_killed(monkeypatch):
    monkeypatch.setattr(ending, "_SECONDS_BETWEEN_LOOKS", 0.01)
    alive, writing = os.pipe()
    caller = os.fork()
    if not caller:
        if not os.fork():
            ending.end_with(os.getppid())
            os.write(writing, b"here")
            time.sleep(60)
            os.write(writing, b"still")
            os._exit(0)
        time.sleep(0.1)
        os._exit(0)
    os.close(writing)
    os.waitpid(caller, 0)
    with os.fdopen(alive, "rb") as told:
        assert told.read() == b"here"
