"""A folder of toy experiments, for tests of running and reporting them."""

import json
from pathlib import Path

STUDY = """
from shortlist.evidence import Claim, Figure, Outcome, Table, beats
from shortlist.train.comparison import Interval


def trial(settings, root):
    with open(root / "calls.txt", "a") as file:
        file.write(f"{settings['seed']}\\n")
    if settings["seed"] == settings.get("broken"):
        raise ValueError("`seed` must not be this one.")
    return {"ours": 0.5 + 0.01 * settings["seed"], "other": 0.4 + 0.01 * settings["seed"]}


def study(settings, published, lab):
    seeds = settings["seeds"]
    lab.plan(len(seeds))
    more = {"broken": settings["broken"]} if "broken" in settings else {}
    found = lab.trials(trial, [{"seed": seed, **more} for seed in seeds])
    ours, other = ([values[name] for values in found] for name in ("ours", "other"))
    lab.figures.mkdir(parents=True, exist_ok=True)
    (lab.figures / "chart.png").write_bytes(b"picture")
    return Outcome(
        "Nothing was trained.",
        [Claim("Ours beats the other", "80 | 70", beats(ours, other, names=("ours", "other")))],
        [Table("Accuracy, %", ["loss", "here", "published"], [["ours", Interval.of(ours), *published.values()]], True)],
        [Figure("chart.png", "A chart.")],
        ["Three rates."],
    )
"""

CONFIG = """
title: Ours and the other
publication: lml
item: table {item}
claim: {claim}
study: toy:study
published: {{ours: "80.0"}}
small: {{minutes: 1, files: [calls.txt], settings: {{seeds: [0, 1, 2, 3, 4]}}}}
paper: {{files: [large], settings: {{seeds: [0, 1]}}}}
"""


def write_experiments(root: Path) -> Path:
    """Two experiments that share their trials, and the file that they read; returns the folder of the experiments."""
    folder = root / "toys"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "toy.py").write_text(STUDY)
    for item in (2, 10):
        (folder / f"lml-table-{item}.yaml").write_text(CONFIG.format(item=item, claim=1))
    about = {"claims": {"1": "Ours"}, "papers": {"lml": "A paper"}}
    (folder / "claims.json").write_text(json.dumps(about))
    (root / "data").mkdir()
    (root / "data" / "calls.txt").write_text("")
    return folder
