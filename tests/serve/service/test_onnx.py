"""ONNX runtime as the engine: the same answers, for the model as it is now."""

import shutil

import pytest

from shortlist.cli import main
from shortlist.predict import calibrate_model, recalibrate_model
from shortlist.serve.models import ServedModel
from tests.cli.trained import VALUES
from tests.serve.service.conftest import running

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("name", "rows"), [
    ("parts", {"features": VALUES[:50].astype(float).tolist()}),
    ("texts", {"texts": ["owl is a word", "a fox", "hare hare", ""]}),
])  # fmt: skip
def test_an_exported_model_answers_with_the_same_sets(folder, tmp_path, capsys, name, rows):
    model = shutil.copytree(folder / name, tmp_path / name)
    assert main(["export", str(model), "--onnx"]) == 0
    with running(model) as exported, running(folder / name) as saved:
        assert exported.service.models[name].engine == "onnx"
        assert saved.service.models[name].engine == "torch"
        found, wanted = (each.post("/predict", **rows)["answers"][0]["rows"] for each in (exported, saved))
        if name == "parts":
            assert "finite" in exported.refused(422, "/predict", features=[[1.0, 2.0, 3.0, 1e300]])
    assert [row["labels"] for row in found] == [row["labels"] for row in wanted]
    for row, expected in zip(found, wanted, strict=True):
        assert row["scores"] == pytest.approx(expected["scores"], abs=1e-6)


def test_an_export_of_another_state_of_the_model_is_not_used(folder, tmp_path, capsys):
    model = shutil.copytree(folder / "parts", tmp_path / "parts")
    assert main(["export", str(model), "--onnx"]) == 0
    calibrate_model(model, str(folder / "parts.csv"), "top-k", k=1)
    assert ServedModel("parts", model).engine == "onnx"  # Rules are applied to what the export computes.
    assert ServedModel("parts", model, engine="torch").engine == "torch"
    recalibrate_model(model, str(folder / "parts.csv"), "temperature")
    assert ServedModel("parts", model).engine == "torch"
    with pytest.raises(ValueError, match="export it again"):
        ServedModel("parts", model, engine="onnx")
