"""The service itself: models, their held-out rows, the queue of requests, and the work that is done once and kept."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from shortlist.data import Dataset, Inputs
from shortlist.errors import InputError
from shortlist.serve.answers import Answer, PredictionRequest
from shortlist.serve.audits import Auditor
from shortlist.serve.batching import Batcher, Runner
from shortlist.serve.browse import place_of
from shortlist.serve.curves import curve, describe_rule, rule_facts
from shortlist.serve.held_out import HeldOut, fitted_rule, open_held_out, rule_key
from shortlist.serve.models import Engine, ServedModel, open_models
from shortlist.serve.observing import Metrics
from shortlist.serve.workers import ProcessRunner, ThreadRunner
from shortlist.sets import SetRule

Result = TypeVar("Result")


@dataclass(frozen=True)
class Limits:
    """What one request, and all together, may ask for.

    Attributes:
        rows: in a request.
        bytes: of its body.
        pixels: of an image, and of all images of a request as the model takes them.
        seconds: for its body to arrive, and for its answer.
        study_seconds: for what is computed on all held-out rows.
        waiting: requests in the queue.
        batch: rows that go through a network at a time.
    """

    rows: int = 1024
    bytes: int = 1 << 25
    pixels: int = 1 << 24
    seconds: float = 30.0
    study_seconds: float = 300.0
    waiting: int = 256
    batch: int = 64


class Service:
    """Models that answer, and what is known of them.

    Args:
        paths: folders of models or comparisons.
        data: a file with labels for the models whose training data are gone.
        engine: as of `ServedModel`.
        workers: processes that compute answers; 0 computes them in this one.
        limits: on requests.
        read_only: whether saving rules is refused.

    Raises:
        InputError: names a folder that holds no model, or data that cannot be read.
    """

    def __init__(
        self,
        paths: Sequence[str | Path],
        *,
        data: str | None = None,
        engine: Engine = "auto",
        workers: int = 0,
        limits: Limits | None = None,
        read_only: bool = False,
    ) -> None:
        self.limits, self.read_only = limits or Limits(), read_only
        self.models = open_models(paths, engine=engine)
        self.notes: dict[str, str] = {}
        self._data, self._opened, self._held_out = data, dict[str, Dataset](), dict[str, HeldOut | None]()
        self._locks = {name: threading.Lock() for name in self.models}
        # Others, because what needs the rows alone must not wait for a curve.
        self._drawing = {name: threading.Lock() for name in self.models}
        self._opening, self._saving = threading.Lock(), threading.Lock()
        self._described: WeakKeyDictionary[SetRule, dict[str, Any]] = WeakKeyDictionary()
        self._curves: dict[tuple[str, str, str], bytes] = {}
        # Curves take seconds; what a click or an upload asks for must not wait for them.
        self._study = ThreadPoolExecutor(2, thread_name_prefix="study")
        self._look = ThreadPoolExecutor(4, thread_name_prefix="look")
        self.runner: Runner = ThreadRunner(self.models)
        if workers:
            self.runner = ProcessRunner(self.models, workers, engine=engine, seconds=2 * self.limits.seconds)
        self._auditors = {name: Auditor(model) for name, model in self.models.items()}
        self.batcher = Batcher(self.runner, most_rows=self.limits.batch, most_waiting=self.limits.waiting)

        self.metrics = Metrics(
            {
                "waiting": ("Requests that wait for a model.", "gauge", lambda: self.batcher.waiting),
                "batches_total": ("Passes through a network.", "counter", lambda: self.batcher.batches),
                "batched_rows_total": ("Rows of these passes.", "counter", lambda: self.batcher.rows),
                "workers_replaced_total": ("Workers that died.", "counter", lambda: self.runner.replaced),
            }
        )

    def start(self) -> None:
        """Begin to answer, and open the held-out rows in the background."""
        self.batcher.start()
        for name in self.models:
            self._study.submit(self.held_out, name)

    async def close(self) -> None:
        """Finish the batch that is being computed and stop."""
        await self.batcher.close()
        for threads in (self._study, self._look):
            threads.shutdown(wait=False, cancel_futures=True)

    def model(self, name: str) -> ServedModel:
        """A model by its name.

        Raises:
            KeyError: if there is none.
        """
        return self.models[name]

    async def study(self, work: Callable[..., Result], *given: Any, **named: Any) -> Result:
        """Do work on all held-out rows, such as a curve, in a thread; TimeoutError if it takes too long.

        The thread goes on, and what it finds is kept for the next request.
        """
        return await self._in_thread(self._study, lambda: work(*given, **named))

    async def look(self, work: Callable[..., Result], *given: Any, **named: Any) -> Result:
        """Do quick work in a thread, such as a page of rows or an image that is decoded; otherwise as `study`."""
        return await self._in_thread(self._look, lambda: work(*given, **named))

    async def _in_thread(self, threads: ThreadPoolExecutor, work: Callable[[], Result]) -> Result:
        done = asyncio.get_running_loop().run_in_executor(threads, work)
        return await asyncio.wait_for(asyncio.shield(done), self.limits.study_seconds)

    def exclusively(self, work: Callable[..., Result], *given: Any) -> Result:
        """Do work that no other such work may interrupt, such as saving."""
        with self._saving:
            return work(*given)

    def describe_rule(self, rule: SetRule) -> dict[str, Any]:
        """A rule as the service shows it; kept with the rule, because every prediction says it."""
        if rule not in self._described:
            self._described[rule] = describe_rule(rule)
        return self._described[rule]

    def auditor(self, name: str) -> Auditor:
        """The audits of a model's output layer."""
        return self._auditors[name]

    def comparable(self) -> list[str]:
        """The models whose held-out rows are those of the first model that has some."""
        keys = {name: held_out.key for name in self.models if (held_out := self.held_out(name)) is not None}
        if not keys:
            raise InputError("no model has held-out rows: `row` must be null.")
        first = next(iter(keys.values()))
        return [name for name, key in keys.items() if key == first]

    async def ask(
        self, name: str, inputs: Inputs, rule: SetRule, *, key: object, seed: int | None = None, top: int = 0
    ) -> Answer:
        """The answer of a model for rows; ``key`` is equal for rows that can be in one batch."""
        return await self.batcher.ask(name, str(key), PredictionRequest(inputs, rule, seed, top))

    def held_out(self, name: str) -> HeldOut | None:
        """The held-out rows of a model, opened once; None if its data are gone, and `notes` says why."""
        with self._locks[name]:
            if name not in self._held_out:
                try:
                    with self._opening:
                        self._held_out[name] = open_held_out(self.models[name], self._data, self._opened)
                except (InputError, ImportError) as error:
                    self._held_out[name], self.notes[name] = None, str(error)
            return self._held_out[name]

    def need_held_out(self, name: str) -> HeldOut:
        """The held-out rows of a model.

        Raises:
            InputError: if its data are gone.
        """
        found = self.held_out(name)
        if found is None:
            raise InputError(self.notes[name])
        return found

    def rule(self, name: str, kind: str | None = None, options: Mapping[str, Any] | None = None) -> SetRule:
        """The rule to answer with: the model's own by default, one of its folder, or one that is fitted now.

        Raises:
            InputError: if the model has no rule of its own, or the options do not suit.
        """
        model = self.models[name]
        if kind is None:
            if model.rule is None:
                raise InputError(f"`{name}` has no rule of its own: `rule` must name one, such as top-k.")
            return model.rule
        known = kind in model.rules or kind == "top-k"
        return fitted_rule(model, kind, options, None if known and not options else self.held_out(name))

    def finished_curve(self, name: str, kind: str) -> bytes | None:
        """A curve that was computed before."""
        return self._curves.get(self._curve_key(name, kind))

    def _curve_key(self, name: str, kind: str) -> tuple[str, str, str]:
        own = self.models[name].rule
        return name, kind, "" if own is None else rule_key(own)

    def curve(self, name: str, kind: str) -> bytes:
        """The curve of a kind of rule as JSON; computed once for the model and its present rule."""
        held_out, key = self.need_held_out(name), self._curve_key(name, kind)
        if key not in self._curves:
            with self._drawing[name]:
                if key not in self._curves:
                    self._curves[key] = json.dumps(curve(held_out, kind), allow_nan=False).encode()
        return self._curves[key]

    def peers(self, name: str, rule: SetRule) -> dict[HeldOut, SetRule]:
        """The models whose answers are compared on the rows of one, which comes first, and their rules."""
        own = self.need_held_out(name)
        found = {own: rule}
        for other in self.models:
            theirs = None if other == name else self.held_out(other)
            if theirs is not None and theirs.key == own.key and theirs.model.rule is not None:
                same = theirs.shown.rows.equal(own.shown.rows)
                found |= {theirs: theirs.model.rule} if same else {}
        return found

    def held_out_row(self, name: str, row: int) -> Inputs:
        """A held-out row as an input, by its number in the dataset."""
        held_out = self.need_held_out(name)
        place = place_of(held_out, row)
        return held_out.dataset.inputs.take(held_out.shown.rows[place : place + 1])

    def describe(self, name: str) -> dict[str, Any]:
        """What a page needs to know of a model."""
        model, held_out = self.models[name], self._held_out.get(name)
        about = None
        if held_out is not None:
            about = {"data": held_out.data, "part": held_out.part, "rows": len(held_out.shown)}
        return {
            "name": name,
            "kind": model.takes,
            "shape": list(model.shape),
            "columns": model.columns,
            "labels": len(model.labels),
            "loss": model.saved.plan.loss,
            "head": model.saved.plan.head,
            "task": "one class" if model.one_class else "sets",
            "engine": model.engine,
            "rule": None if model.rule is None else describe_rule(model.rule),
            "rules": [describe_rule(rule) for rule in model.rules.values()],
            "kinds": rule_facts(model),
            "held_out": about,
            "held_out_state": "ready" if about else "gone" if name in self._held_out else "opening",
            "note": self.notes.get(name),
            "can_save": about is not None and model.is_writable and not self.read_only,
        }
