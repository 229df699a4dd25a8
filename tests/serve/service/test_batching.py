"""The queue: what is batched together, what is refused, and what becomes of requests when a process dies."""

import asyncio

import pytest
import torch

from shortlist.data import Features, Texts
from shortlist.errors import InputError
from shortlist.serve.answers import PredictionRequest, joined
from shortlist.serve.batching import Batcher, QueueFullError, WorkerDiedError
from shortlist.sets import AverageK, TopK

RULE = TopK(1).fit(torch.eye(3), from_logits=False)


def request(rows: int = 1, value: float = 0.0) -> PredictionRequest:
    return PredictionRequest(Features(torch.full((rows, 1), value)), RULE)


class Fake:
    """Answers each request with its own first value; keeps the batches, and waits until it is let go."""

    def __init__(self, *, slots: int = 1, dies: int = 0) -> None:
        self.slots, self.replaced, self.dies = slots, 0, dies
        self.batches: list[list[float]] = []
        self.free = asyncio.Event()
        self.free.set()

    async def run(self, slot, model, requests):
        await self.free.wait()
        values = [float(each.inputs.batch(torch.tensor([0]))) for each in requests]
        self.batches.append(values)
        if self.dies:
            self.dies -= 1
            raise WorkerDiedError("died.")
        if -1.0 in values:
            raise InputError("bad.")
        return [[{"value": value}] for value in values]

    async def close(self):
        pass


def batched(work, **options):
    """Run work with a batcher that is started and closed."""
    runner = {name: options.pop(name) for name in ("slots", "dies") if name in options}

    async def run():
        fake = Fake(**runner)
        batcher = Batcher(fake, **options)
        batcher.start()
        try:
            return await work(fake, batcher)
        finally:
            await batcher.close()

    return asyncio.run(run())


async def ask_all(batcher, values, key="key", rows=1):
    asked = [asyncio.create_task(batcher.ask("model", key, request(rows, value))) for value in values]
    await asyncio.sleep(0)
    return asked


def test_what_waits_while_a_batch_runs_is_answered_together():
    async def work(fake, batcher):
        fake.free.clear()
        first = await ask_all(batcher, [0.0])
        await asyncio.sleep(0)
        others = await ask_all(batcher, [1.0, 2.0, 3.0])
        fake.free.set()
        answers = [await each for each in first + others]
        assert [answer[0]["value"] for answer in answers] == [0.0, 1.0, 2.0, 3.0]
        assert fake.batches == [[0.0], [1.0, 2.0, 3.0]]

    batched(work)


def test_a_batch_holds_no_more_rows_than_it_may_and_keeps_the_order():
    async def work(fake, batcher):
        fake.free.clear()
        asked = await ask_all(batcher, [0.0, 1.0, 2.0], rows=3)
        asked += await ask_all(batcher, [3.0], rows=9)
        fake.free.set()
        await asyncio.gather(*asked)
        assert fake.batches == [[0.0, 1.0], [2.0], [3.0]]

    batched(work, most_rows=6)


def test_rows_of_other_shapes_are_another_batch():
    async def work(fake, batcher):
        fake.free.clear()
        asked = await ask_all(batcher, [9.0])
        await asyncio.sleep(0)
        for key, values in (("a", [0.0, 1.0]), ("b", [2.0]), ("a", [3.0])):
            asked += await ask_all(batcher, values, key=key)
        fake.free.set()
        await asyncio.gather(*asked)
        assert fake.batches == [[9.0], [0.0, 1.0, 3.0], [2.0]]

    batched(work)


def test_a_full_queue_refuses_and_says_when_to_come_again():
    async def work(fake, batcher):
        fake.free.clear()
        asked = await ask_all(batcher, [0.0])
        await asyncio.sleep(0)
        asked += await ask_all(batcher, [1.0, 2.0])
        with pytest.raises(QueueFullError) as refused:
            await batcher.ask("model", "key", request())
        assert refused.value.retry_after >= 1
        fake.free.set()
        assert len(await asyncio.gather(*asked)) == 3

    batched(work, most_waiting=2)


def test_a_request_that_is_given_up_is_not_computed():
    async def work(fake, batcher):
        fake.free.clear()
        first, second = await ask_all(batcher, [0.0]), await ask_all(batcher, [1.0, 2.0])
        second[0].cancel()
        await asyncio.sleep(0)
        fake.free.set()
        await asyncio.gather(first[0], second[1])
        assert 1.0 not in [value for batch in fake.batches for value in batch]

    batched(work)


def test_a_bad_request_does_not_spoil_the_others():
    async def work(fake, batcher):
        fake.free.clear()
        asked = await ask_all(batcher, [9.0]) + await ask_all(batcher, [1.0, -1.0, 2.0])
        fake.free.set()
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert isinstance(found[2], InputError)
        assert [found[1], found[3]] == [[{"value": 1.0}], [{"value": 2.0}]]

    batched(work)


def test_what_a_dead_worker_had_is_given_to_another_once_and_alone():
    async def work(fake, batcher):
        fake.free.clear()
        asked = await ask_all(batcher, [1.0, 2.0, 3.0])
        fake.free.set()
        assert [answer[0]["value"] for answer in await asyncio.gather(*asked)] == [1.0, 2.0, 3.0]
        assert fake.batches == [[1.0, 2.0, 3.0], [1.0], [2.0], [3.0]]

    batched(work, dies=1)


def test_a_request_that_kills_two_workers_gets_one_clear_error():
    async def work(fake, batcher):
        with pytest.raises(WorkerDiedError):
            await batcher.ask("model", "key", request())
        assert (await batcher.ask("model", "key", request(value=4.0)))[0]["value"] == 4.0

    batched(work, dies=2)


def test_requests_that_wait_when_the_service_stops_are_cancelled():
    async def work(fake, batcher):
        fake.free.clear()
        asked = await ask_all(batcher, [0.0]) + await ask_all(batcher, [1.0])
        await batcher.close()
        found = await asyncio.gather(*asked[1:], return_exceptions=True)
        assert isinstance(found[0], asyncio.CancelledError)
        asked[0].cancel()

    batched(work)


def test_inputs_of_several_requests_are_joined_in_order():
    texts = joined([Texts(["a", "b"]), Texts(["c"])])
    assert texts.batch(torch.arange(3)) == ["a", "b", "c"]
    rows = joined([Features(torch.zeros(1, 2)), Features(torch.ones(2, 2))])
    assert rows.batch(torch.arange(3))[:, 0].tolist() == [0.0, 1.0, 1.0]


def test_rows_that_tie_are_answered_as_if_their_request_were_alone(asked, monkeypatch):
    """Of rows that tie at the threshold of an average size every other one has the label, by their place in a call."""
    from shortlist.predict import tensor_scores
    from shortlist.serve import answers

    model = asked.service.models["parts"]
    tied = torch.zeros(4, len(model.labels))
    monkeypatch.setattr(type(model), "scores", lambda self, inputs: tensor_scores(
        tied[: len(inputs)], from_logits=True, names=model.labels))  # fmt: skip
    rule = AverageK(1.5).fit(tied, from_logits=True)
    asked_alone = PredictionRequest(Features(torch.zeros(1, 4)), rule)
    (alone,) = answers.answer(model, [asked_alone])
    together = answers.answer(model, [asked_alone] * 4)
    assert together == [alone] * 4
    (at_once,) = answers.answer(model, [PredictionRequest(Features(torch.zeros(4, 4)), rule)])
    assert [len(row["labels"]) for row in at_once] != [len(alone[0]["labels"])] * 4
