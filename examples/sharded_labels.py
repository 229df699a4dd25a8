"""Train an output layer with a million labels for recall at k on two processes; each holds half of the labels.

Run ``python examples/sharded_labels.py``. It starts its own processes, first one and then two, and reports the memory,
time and communication of each run. On several machines, start the same function with ``torchrun``, which sets the
environment variables that ``init_process_group`` reads.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from shortlist.nn import LMLNLL, ColumnParallelHead
from shortlist.sets import TopK

MB = 1e6


def toy(examples: int, inputs: int, labels: int, positives: int) -> tuple[Tensor, Tensor]:
    """Examples with a few labels each, drawn from a few hundred."""
    generator = torch.Generator().manual_seed(0)
    used = torch.randperm(labels, generator=generator)[:300]
    target = used[torch.rand(examples, len(used), generator=generator).topk(positives).indices]
    return torch.randn(examples, inputs, generator=generator), target


def memory() -> float:
    """The peak resident memory of this process, in MB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / MB if sys.platform == "darwin" else peak * 1024 / MB


class Wire:
    """Counts the communication of this process."""

    def __init__(self) -> None:
        self.bytes, self.calls, self._reduce = 0, 0, dist.all_reduce

    def all_reduce(self, tensor: Tensor, *arguments: object, **options: object) -> object:
        """``torch.distributed.all_reduce``, counted."""
        self.bytes, self.calls = self.bytes + tensor.numel() * tensor.element_size(), self.calls + 1
        return self._reduce(tensor, *arguments, **options)


def clip(encoder: nn.Module, head: ColumnParallelHead, most: float) -> None:
    """Clip the total gradient norm; torch does not accept plain and sharded gradients in one call."""
    plain, sharded = (get_total_norm([p.grad for p in part.parameters()]) for part in (encoder, head))
    norm = torch.stack([plain, sharded.full_tensor()]).norm()
    for part in (encoder, head):
        clip_grads_with_norm_(part.parameters(), most, norm)


def train(mesh: DeviceMesh, labels: int, options: argparse.Namespace) -> tuple[list[float], float, float]:
    """The loss of each step, the recall at k on the first examples, and the size of the local layer in MB."""
    inputs, target = toy(options.examples, options.features, labels, options.k)
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Linear(options.features, options.features), nn.Tanh())
    head = ColumnParallelHead(options.features, labels, mesh)
    loss = LMLNLL(options.k)
    optimizer = torch.optim.SGD([*encoder.parameters(), *head.parameters()], lr=options.rate)
    losses = []
    for step in range(options.steps):
        batch = torch.arange(step * options.batch, (step + 1) * options.batch) % options.examples
        optimizer.zero_grad()
        value = loss(head(encoder(inputs[batch])), target[batch])
        value.backward()
        clip(encoder, head, options.clip)
        optimizer.step()
        losses.append(value.item())
    with torch.no_grad():
        scores = head(encoder(inputs[:8]))
    sets = TopK(options.k).fit(scores, from_logits=True).predict(scores)
    own = sum(parameter.to_local().nbytes for parameter in head.parameters()) / MB
    return losses, sets.count_hits(target[:8]).float().mean().item(), own


def work(rank: int, processes: int, folder: str, options: argparse.Namespace) -> None:
    """Run one process; a warm-up training on few labels loads all code, so that it is not counted."""
    torch.set_num_threads(options.threads)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=processes)
    mesh = init_device_mesh("cpu", (processes,))
    train(mesh, 4 * options.k, options)
    wire, start = Wire(), memory()
    dist.all_reduce = wire.all_reduce
    losses, found, own = train(mesh, options.labels, options)
    figures = {"losses": losses, "found": found, "own": own, "peak": memory() - start}
    figures |= {"wire": wire.bytes / options.steps, "rounds": wire.calls / options.steps}
    Path(folder, f"{rank}.json").write_text(json.dumps(figures))
    dist.destroy_process_group()


def run(processes: int, options: argparse.Namespace) -> dict[str, float]:
    """Start the processes and collect their results."""
    spawn = multiprocessing.get_context("spawn")  # so that processes do not share memory
    with tempfile.TemporaryDirectory() as folder:
        started = [spawn.Process(target=work, args=(rank, processes, folder, options)) for rank in range(processes)]
        for process in started:
            process.start()
        for process in started:
            process.join()
        if any(process.exitcode for process in started):
            raise SystemExit("a process failed; see its output above.")
        found = [json.loads(Path(folder, f"{rank}.json").read_text()) for rank in range(processes)]
    first = found[0]
    figures = {"labels": options.labels, "processes": processes, "first": first["losses"][0]}
    figures |= {"last": first["losses"][-1], "found": first["found"], "wire": first["wire"], "rounds": first["rounds"]}
    return figures | {name: max(each[name] for each in found) for name in ("own", "peak")}


HEADINGS = {
    "labels": ("labels", "{:,.0f}"),
    "processes": ("processes", "{:.0f}"),
    "first": ("first loss", "{:.3f}"),
    "last": ("last loss", "{:.3f}"),
    "found": ("positives found", "{:.2f}"),
    "own": ("layer MB/process", "{:.0f}"),
    "peak": ("peak MB/process", "{:.0f}"),
    "wire": ("bytes sent/step", "{:,.0f}"),
    "rounds": ("rounds/step", "{:.0f}"),
}


def table(rows: list[dict[str, float]]) -> str:
    """Aligned text."""
    cells = [[heading for heading, _ in HEADINGS.values()]]
    cells += [[form.format(row[name]) for name, (_, form) in HEADINGS.items()] for row in rows]
    widths = [max(len(cell) for cell in column) for column in zip(*cells, strict=True)]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in cells)


def main() -> None:
    """Parse the options, run with each number of processes, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2], help="numbers of processes to compare")
    for name, value in {"labels": 1_000_000, "features": 64, "batch": 32, "examples": 64, "steps": 8, "k": 5}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--rate", type=float, default=4.0, help="learning rate")
    parser.add_argument("--clip", type=float, default=10.0, help="maximum total gradient norm")
    parser.add_argument("--threads", type=int, default=1, help="threads per process")
    options = parser.parse_args()
    print(table([run(processes, options) for processes in options.processes]))
    print("\nPeak: the peak memory of the process minus its memory before training, with all code loaded.")


if __name__ == "__main__":
    main()
