"""``make test-install``: each extra alone in a fresh environment, with the commands whose messages name it."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from tests.install.environments import ROOT, Environment, extras, readme_example, say

# Small runs, each on files that `artifacts` wrote. What a command prints is for other tests.
COMMANDS = [
    "--version",
    "--print-completion bash",
    "losses",
    "rules",
    "memory --labels 1000 --features 16 --rows 8 --loss bce",
    "bench --rows 8 --labels 16",
    "data formats",
    "data inspect digits --no-figure",
    "data inspect digits",
    "fit digits --tune 0 --epochs 1 --output OUT/model",
    "compare digits --losses cross_entropy --seeds 1 --tune 0 --epochs 1 --output OUT/comparison",
    "report FILES/comparison --output OUT/report.html",
    "predict FILES/model --data digits --part test --output OUT/sets.jsonl",
    "evaluate FILES/model --data digits",
    "calibrate FILES/scores.npy FILES/labels.npy --logits --rule average-error --alpha 0.1 --output OUT/rule.json",
    "predict FILES/scores.npy --logits --rule FILES/rule.json --output OUT/rows.parquet",
    "evaluate FILES/scores.npy FILES/labels.npy --logits",
    "audit FILES/layer.npy FILES/sets.txt",
    "export FILES/model --onnx OUT/model.onnx",
    f"reproduce --list --experiments {ROOT}/experiments",
]

NOT_ALONE = {"cli", "dev"}
"""The extra of commands, which `COMMANDS` try, and that of this repository's own tools."""

# What a user of an extra imports and calls first.
CALLS = {
    "fast": "import torch; from shortlist.functional import lml; lml(torch.randn(64, 128), 3)",
    "metrics": "import torch; from shortlist.metrics import MicroF1; MicroF1(k=1)(torch.rand(3, 3), torch.eye(3))",
    "audit": "import torch; from shortlist.audit import audit; audit(torch.nn.Linear(2, 5), [[1]]).verify()",
    "train": "from shortlist.data import AmbiguousWorld; from shortlist.train import FitOptions, fit\n"
    "fit(AmbiguousWorld().sample(200, seed=0), FitOptions(epochs=1))",
    "report": "import shortlist.report",
    "data": "from shortlist.data import digits; digits()",
    "sklearn": "from sklearn.datasets import load_iris\n"
    "from shortlist.integrations.sklearn import SetClassifier\n"
    "SetClassifier(epochs=1).fit(*load_iris(return_X_y=True))",
    "hf": "import shortlist.integrations.datasets\n"
    "from shortlist.integrations.transformers import trainer_loss; trainer_loss('two_way')",
    "onnx": "import io, torch; from shortlist.nn import LML\n"
    "torch.onnx.export(LML(2), (torch.randn(2, 5),), io.BytesIO(), dynamo=True, verbose=False)",
    "completion": "import sys; from shortlist.cli import main\n"
    "sys.argv = ['shortlist', '--print-completion', 'bash']; sys.exit(main())",
    "cluster": "from shortlist.cluster import run_tasks\n"
    "if __name__ == '__main__':\n"
    "    assert sorted(run_tasks(pow, 2, [1, 3], cluster='dask://', jobs=1)) == [(0, 2), (1, 8)]\n"
    "    import ray",
    "pubmed": "from shortlist.data import pubmed; assert pubmed().num_labels",
    "encoders": "import torch; from shortlist.data import EfficientNetLite0\n"
    "EfficientNetLite0()(torch.zeros(1, 3, 32, 32, dtype=torch.uint8))",
    "serve": "import multipart, shortlist.serve.audits; from shortlist.serve.http.server import guarded",
    "docs": "import ipykernel, jupytext, latex2mathml, material, mkdocs, mkdocstrings, nbclient",
    "fuzz": "import atheris",
    "all": "from shortlist.data import AmbiguousWorld\n"
    "from shortlist.train import FitOptions, evaluate, export_onnx, fit, load_model, save_model\n"
    "data = AmbiguousWorld().sample(300, seed=0); fitted = fit(data, FitOptions(epochs=1))\n"
    "save_model(fitted, 'model', rule=evaluate(fitted, data).rule); export_onnx(load_model('model'), 'model.onnx')",
}


def artifacts(environment: Environment, folder: Path) -> None:
    """Write the files that commands read, in an environment that has all extras."""
    rng = np.random.default_rng(0)
    folder.mkdir()
    np.save(folder / "scores.npy", rng.normal(size=(50, 6)).astype(np.float32))
    np.save(folder / "labels.npy", rng.integers(6, size=50))
    np.save(folder / "layer.npy", np.eye(6, dtype=np.float32))
    (folder / "sets.txt").write_text("0 1\n2\n")
    for command in COMMANDS:
        if command.startswith(("fit", "compare", "calibrate")):
            assert ask(environment, command, folder, folder) is None


def ask(environment: Environment, command: str, files: Path, out: Path) -> str | None:
    """Run a command; return the extra that it asks for, or None if it ran."""
    done = environment.run(
        "shortlist", *command.replace("FILES", str(files)).replace("OUT", str(out)).split(), check=False
    )
    if done.returncode == 0:
        return None
    named = re.fullmatch(r"shortlist: .*run `pip install '\.\[(\w+)\]'` in a checkout of shortlist\.\n", done.stderr)
    if named is None:
        raise SystemExit(f"`shortlist {command}` neither ran nor named an extra:\n{done.stderr}")
    return named[1]


def main(wanted: list[str]) -> None:
    """Check all extras, or those that are named."""
    with TemporaryDirectory() as scratch:
        files, out = Path(scratch) / "files", Path(scratch) / "out"
        out.mkdir()
        full = Environment(Path(scratch) / "all", "torch", f"{ROOT}[all]")
        artifacts(full, files)
        core = Environment(Path(scratch) / "core", "torch", str(ROOT))
        code, printed = readme_example()
        assert core.run("python", "-c", code).stdout == printed, "the README's example prints something else"
        asked: dict[str, str | None] = {}
        for command in COMMANDS:
            asked[command] = ask(core, command, files, out)
            say(f"core: shortlist {command}: {asked[command] or 'runs'}")
        for extra in sorted({*CALLS, *(extra for extra in asked.values() if extra is not None)}):
            if wanted and extra not in wanted:
                continue
            assert extra in extras(), f"{extra} is not an extra"
            made = full if extra == "all" else Environment(Path(scratch) / extra, "torch", f"{ROOT}[{extra}]")
            if extra in CALLS:
                made.run("python", "-c", CALLS[extra], cwd=out)
            commands = [command for command, named in asked.items() if named == extra or extra == "all"]
            for command in commands:
                again = ask(made, command, files, out)
                assert again is None, f"`shortlist {command}` asks for {again} after {extra} was installed"
            made.remove()
            say(f"{extra}: installs alone, and {len(commands)} commands run with it")


if __name__ == "__main__":
    main(sys.argv[1:])
