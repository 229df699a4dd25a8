"""Pictures of argmaxability: what they show, and that files are written whole."""

import itertools
import math
from types import SimpleNamespace

import matplotlib.image
import numpy as np
import pytest
import torch

from shortlist.audit.counting import count_argmaxable
from shortlist.audit.curves import RadiusQuantiles
from shortlist.report import (
    argmaxability,
    draw_arrangement,
    draw_lattice,
    draw_projections,
    draw_radius_quantiles,
    draw_share,
)
from shortlist.report.chart_matplotlib import new_figure, save_figure
from tests.python_process import run_python


def gaussian(num_labels, dim, seed=0):
    return np.random.default_rng(seed).standard_normal((num_labels, dim))


def quantiles(k=2, num_labels=(16, 64), slacks=(0, 8), radii=((1.0, 10.0), (0.0, 1e-12)), undecided=0):
    counts = np.full((len(num_labels), len(slacks)), undecided)
    return RadiusQuantiles(k, 0.01, num_labels, slacks, np.array(radii), counts)


DRAWINGS = {
    "lattice": lambda path: draw_lattice(gaussian(3, 2), path),
    "plane": lambda path: draw_arrangement(gaussian(4, 2), path),
    "space": lambda path: draw_arrangement(gaussian(4, 3), path),
    "share": lambda path: draw_share(path, 50),
    "quantiles": lambda path: draw_radius_quantiles(path, quantiles()),
    "projections": draw_projections,
}


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_figure_is_written_into_a_new_folder(name, tmp_path):
    path = DRAWINGS[name](tmp_path / "new" / "figure.png")
    assert path == tmp_path / "new" / "figure.png"
    assert [entry.name for entry in path.parent.iterdir()] == ["figure.png"]
    height, width, _ = matplotlib.image.imread(path).shape
    assert width >= 600
    assert height >= 500


@pytest.mark.parametrize(("suffix", "start"), [("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_the_suffix_chooses_the_format(suffix, start, tmp_path):
    assert save_figure(new_figure(1, 1), tmp_path / f"figure.{suffix}").read_bytes().startswith(start)
    with pytest.raises(ValueError, match="nonsense"):
        save_figure(new_figure(1, 1), tmp_path / "figure.nonsense")
    assert [path.suffix for path in tmp_path.iterdir()] == [f".{suffix}"]


def test_importing_loads_no_matplotlib_and_drawing_chooses_no_backend():
    code = (
        "import sys, pathlib, tempfile; from shortlist.report import draw_share; "
        "early = 'matplotlib' in sys.modules; "
        "draw_share(pathlib.Path(tempfile.mkdtemp()) / 'a.png', 10); "
        "sys.stdout.write(f\"{early} {'matplotlib.pyplot' in sys.modules}\")"
    )
    assert run_python("-c", code).stdout == "False False"


@pytest.mark.parametrize(("num_labels", "dim"), [(1, 1), (3, 2), (5, 3), (6, 4), (4, 4), (8, 2)])
def test_the_lattice_agrees_with_covers_count(num_labels, dim):
    nodes = argmaxability.lattice(gaussian(num_labels, dim))
    assert len({tuple(signs) for signs in nodes.signs.tolist()}) == 2**num_labels
    assert (nodes.verdicts == "argmaxable").sum() == count_argmaxable(num_labels, dim)
    assert (nodes.verdicts == "unargmaxable").sum() == 2**num_labels - count_argmaxable(num_labels, dim)


def test_the_lattice_of_a_layer_with_a_bias_counts_the_bias():
    torch.manual_seed(0)
    layer = torch.nn.Linear(2, 5).double()
    nodes = argmaxability.lattice(layer)
    again = argmaxability.lattice(layer.weight.detach(), bias=layer.bias.detach())
    assert (nodes.verdicts == "argmaxable").sum() == count_argmaxable(5, 2, bias=True)
    assert (nodes.verdicts == again.verdicts).all()


@pytest.mark.parametrize("num_labels", [1, 4, 8])
def test_the_lattice_is_laid_out_in_levels_with_an_edge_for_every_flip(num_labels):
    nodes = argmaxability.lattice(gaussian(num_labels, 2))
    assert (nodes.positions[:, 1] == (nodes.signs > 0).sum(axis=1)).all()
    assert len(nodes.edges) == num_labels * 2 ** (num_labels - 1)
    assert len({tuple(edge) for edge in nodes.edges.tolist()}) == len(nodes.edges)
    first, second = nodes.edges.T
    assert ((nodes.signs[first] != nodes.signs[second]).sum(axis=1) == 1).all()
    assert (nodes.positions[second, 1] - nodes.positions[first, 1] == 1).all()
    for level in range(num_labels + 1):
        places = np.sort(nodes.positions[nodes.positions[:, 1] == level, 0])
        assert (np.diff(places) > 0.99).all()
        assert places == pytest.approx(-places[::-1])


def test_undecided_assignments_are_drawn_as_such(tmp_path, monkeypatch):
    def open_audit(weight, sets, *options, **more):
        return SimpleNamespace(verdicts=np.array(["undecided", "argmaxable", "unargmaxable", "undecided"]))

    drawn = []
    monkeypatch.setattr(argmaxability, "audit", open_audit)
    monkeypatch.setattr(argmaxability, "save_figure", lambda figure, path: drawn.append(figure))
    draw_lattice(gaussian(2, 2), tmp_path / "figure.png")
    legend = [text.get_text() for text in drawn[0].axes[0].get_legend().get_texts()]
    assert legend == ["argmaxable: 1", "unargmaxable: 1", "undecided: 2"]
    marks = {mark.get_paths()[0].vertices.shape for mark in drawn[0].axes[0].collections if mark.get_label()[0] != "_"}
    assert len(marks) == 3  # three shapes, not only colors


def test_the_names_of_the_labels_are_written(tmp_path):
    text = draw_lattice(gaussian(2, 2), tmp_path / "figure.svg", names=["cat", "fox"]).read_text()
    assert "cat, fox" in text
    with pytest.raises(ValueError, match=r"`names` must have one name per label, 2; got 1\."):
        draw_lattice(gaussian(2, 2), tmp_path / "other.svg", names=["cat"])


@pytest.mark.parametrize(("num_labels", "dim"), [(1, 2), (3, 2), (7, 2), (2, 3), (6, 3), (8, 3)])
def test_the_arrangement_has_a_ball_inside_every_region(num_labels, dim):
    weight = gaussian(num_labels, dim)
    regions = argmaxability.arrangement(weight)
    assert len(regions.signs) == count_argmaxable(num_labels, dim)
    assert regions.undecided == 0
    unit = weight / np.linalg.norm(weight, axis=1, keepdims=True)
    distance = regions.signs * (regions.centres @ unit.T)
    # Each ball touches at least one of its planes and crosses none, with its centre in the box.
    assert distance.min(axis=1) == pytest.approx(regions.radii, rel=1e-6)
    assert (regions.radii > 0).all()
    assert np.abs(regions.centres).max() <= 1 + 1e-12
    for first, second in itertools.combinations(range(len(regions.signs)), 2):
        between = np.linalg.norm(regions.centres[first] - regions.centres[second])
        assert between >= (regions.radii[first] + regions.radii[second]) * (1 - 1e-6)


@pytest.mark.parametrize("dim", [2, 3])
def test_a_layer_without_any_region_is_drawn(dim, tmp_path):
    weight = np.eye(3)[:, :dim] * np.array([1, 1, 0])[:, None]
    assert len(argmaxability.arrangement(weight).signs) == 0
    assert draw_arrangement(weight, tmp_path / "figure.png").stat().st_size > 0


def test_labels_at_the_rim_are_moved_apart_and_stay_in_order():
    angles = np.array([3.0, 0.0, 0.001, 0.002, -3.1, 1.0])
    moved = argmaxability.spread(angles, 0.1)
    assert (np.argsort(moved) == np.argsort(angles)).all()
    around = np.sort(moved)
    gaps = np.diff(np.append(around, around[0] + 2 * math.pi))
    assert gaps.min() >= 0.1 - 1e-3
    assert moved[5] == 1.0  # what has room stays
    assert argmaxability.spread(np.array([0.5]), 0.1) == [0.5]
    assert len(argmaxability.spread(np.array([]), 0.1)) == 0


def test_signs_are_written_where_they_do_not_cover_those_of_a_larger_region():
    places = np.array([[0.0, 0.0], [0.1, 0.0], [0.1, 0.5], [0.9, 0.0]])
    written = argmaxability.with_room(places, np.array([1.0, 2.0, 0.5, 0.1]), np.array([0.2, 0.1]))
    assert written.tolist() == [False, True, True, True]


def test_the_projection_of_the_sphere_keeps_areas():
    generator = np.random.default_rng(0)
    points = generator.standard_normal((40_000, 3))
    points = np.abs(points / np.linalg.norm(points, axis=1, keepdims=True)) * np.sign(points) ** np.array([1, 1, 2])
    flat = argmaxability._equal_area(points)
    radius = np.linalg.norm(flat, axis=1)
    assert radius.max() <= 1 + 1e-12
    # Uniform on the disc: the square of the radius is uniform; 5 standard errors of a share of 40,000.
    for level in (0.1, 0.25, 0.5, 0.9):
        assert abs((radius**2 <= level).mean() - level) < 5 * math.sqrt(level * (1 - level) / 40_000)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda path: draw_lattice(gaussian(9, 2), path), r"at most 8 labels to draw all assignments; got 9\."),
        (lambda path: draw_arrangement(gaussian(3, 4), path), r"2 or 3 features and 1 to 10 labels; got \(3, 4\)\."),
        (lambda path: draw_arrangement(gaussian(11, 2), path), r"2 or 3 features and 1 to 10 labels; got \(11, 2\)\."),
        (lambda path: draw_arrangement(torch.nn.Linear(2, 3), path), "`weight` must have no bias"),
        (lambda path: draw_share(path, 1), r"`num_labels` must be at least 2; got 1\."),
        (lambda path: draw_radius_quantiles(path, []), r"`quantiles` must hold at least one result; got none\."),
    ],
)
def test_what_cannot_be_drawn_is_refused_and_leaves_no_file(call, text, tmp_path):
    with pytest.raises(ValueError, match=text):
        call(tmp_path / "figure.png")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("num_labels", [2, 3, 1000, 3000])
def test_the_share_is_drawn_for_few_and_for_many_labels(num_labels, tmp_path):
    assert draw_share(tmp_path / "figure.png", num_labels).stat().st_size > 0


def test_radii_of_several_k_share_one_figure_with_zeros_and_gaps(tmp_path):
    rows = [quantiles(1), quantiles(3, undecided=2), quantiles(5, radii=((math.nan, 0.0), (0.0, math.nan)))]
    text = draw_radius_quantiles(tmp_path / "figure.svg", rows).read_text()
    for title in ("k = 1", "k = 3 (8 sets undecided)", "k = 5"):
        assert title in text
    one = quantiles(2, num_labels=(16,), slacks=(0,), radii=((3.0,),))
    assert draw_radius_quantiles(tmp_path / "figure.png", one).stat().st_size > 0
