"""Compile the Triton kernels for cards that are not there: registers, spills and shared memory.

Each module of `shortlist.kernels.gpu` may offer ``compile_cases(block)``; see the docstring of that package. Compiling
needs a process without ``TRITON_INTERPRET``: ``python -m benchmarks.gpu_compile`` prints the table as JSON.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import pkgutil
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TARGETS = {"sm_80": ("cuda", 80, 32), "sm_90": ("cuda", 90, 32), "sm_100": ("cuda", 100, 32)}
TARGETS |= {"gfx942": ("hip", "gfx942", 64)}
BLOCKS = (1024, 8192, 16384)
"""The block of 1000 labels, that of the widest row in registers, and a wider row, which is read in blocks."""


def compile_table(targets: tuple[str, ...] = tuple(TARGETS), blocks: tuple[int, ...] = BLOCKS) -> list[dict[str, Any]]:
    """Compile every case for every target, in a process that does not interpret."""
    command = [sys.executable, "-m", "benchmarks.gpu_compile", "--targets", *targets, "--blocks", *map(str, blocks)]
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # today's default, without its warning
    environment["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[1]), environment.get("PYTHONPATH", "")])
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise RuntimeError(f"compiling the kernels failed:\n{done.stderr}")
    return json.loads(done.stdout)


def modules() -> list[Any]:
    """The modules of Triton kernels, those that offer cases."""
    try:
        package = importlib.import_module("shortlist.kernels.gpu")
    except ModuleNotFoundError:
        return []
    names = sorted(found.name for found in pkgutil.iter_modules(package.__path__))
    found = [importlib.import_module(f"shortlist.kernels.gpu.{name}") for name in names]
    return [module for module in found if hasattr(module, "compile_cases")]


def rows(targets: list[str], blocks: list[int]) -> Iterator[dict[str, Any]]:
    """One line per kernel, target and block."""
    for module in modules():
        for block in blocks:
            for name, case in module.compile_cases(block).items():
                for target in targets:
                    yield {"module": module.__name__.rpartition(".")[2], "kernel": name, "block": block} | _compiled(
                        target, *case
                    )


def _compiled(
    target: str, kernel: Any, signature: dict[str, str], constants: dict[str, Any], num_warps: int
) -> dict[str, Any]:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    types = {name: signature.get(name, "constexpr") for name in kernel.arg_names}
    try:
        made = triton.compile(
            ASTSource(fn=kernel, signature=types, constexprs=constants),
            target=GPUTarget(*TARGETS[target]),
            options={"num_warps": num_warps},
        )
    except Exception as error:
        return {"target": target, "error": f"{type(error).__name__}: {str(error).strip().splitlines()[-1:]}"}
    # Columns such as `tensor<1024xf64>` are wide; single numbers may be of float64.
    wide = max((int(size) for size in re.findall(r"tensor<(\d+)xf64>", made.asm["ttir"])), default=0)
    found = {"target": target, "num_warps": num_warps, "shared": made.metadata.shared, "float64": wide >= 256}
    return found | (_nvidia(made) if target.startswith("sm_") else _amd(made))


def _nvidia(made: Any) -> dict[str, int]:
    """What ptxas says of the machine code, read from the resources of the cubin."""
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(made.asm["cubin"])
        file.flush()
        text = subprocess.run([tool, "--dump-resource-usage", file.name], capture_output=True, text=True, check=True)
    used = dict(re.findall(r"(REG|STACK|LOCAL):(\d+)", text.stdout))
    # Spilled registers live in the frame on the stack, which these kernels use for nothing else.
    return {"registers": int(used["REG"]), "spills": int(used["STACK"]) + int(used["LOCAL"])}


def _amd(made: Any) -> dict[str, int]:
    """What the assembler notes about registers and scratch memory; scalar registers spill into vector registers."""
    text = made.asm["amdgcn"]

    def noted(name: str) -> int:
        found = re.search(rf"\.{name}:\s+(\d+)", text)
        return int(found[1]) if found else 0

    return {"registers": noted("vgpr_count"), "spills": noted("vgpr_spill_count") + noted("private_segment_fixed_size")}


def main() -> None:
    """Compile and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", nargs="+", choices=TARGETS, default=list(TARGETS))
    parser.add_argument("--blocks", nargs="+", type=int, default=list(BLOCKS))
    options = parser.parse_args()
    print(json.dumps(list(rows(options.targets, options.blocks))))


if __name__ == "__main__":
    main()
