"""A checkpoint is whole or not there, and nothing but tensors and plain values comes out of it."""

import pickle
import re
from pathlib import Path
from typing import BinaryIO

import pytest
import torch
from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from torch.utils.data import DataLoader

from shortlist.train import checkpoints
from shortlist.train.checkpoints import AtomicCheckpoints

FILES = AtomicCheckpoints()
CONTENT = {
    "epoch": 3,
    "rate": 0.25,
    "name": "a run",
    "nothing": None,
    "flags": (True, False),
    "state": {"weight": torch.arange(600.0).reshape(20, 30), "half": torch.ones(3, dtype=torch.bfloat16)},
    "history": [{"loss": 1.5}, {"loss": 1.25}],
}


def same(a: object, b: object) -> bool:
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


def refused(path: Path, reason: str = "[^ ].*") -> None:
    with pytest.raises(ValueError, match=rf"^`{re.escape(str(path))}` cannot be read as a checkpoint: {reason}\.$"):
        FILES.load_checkpoint(path)


@pytest.fixture
def saved(tmp_path):
    FILES.save_checkpoint(CONTENT, tmp_path / "last.ckpt")
    return tmp_path / "last.ckpt"


@pytest.mark.parametrize("kind", [str, Path])
def test_what_is_saved_comes_back(tmp_path, kind):
    path = kind(tmp_path / "folder" / "of" / "last.ckpt")
    FILES.save_checkpoint(CONTENT, path)
    assert same(FILES.load_checkpoint(path), CONTENT)
    assert same(FILES.load_checkpoint(path, map_location="cpu", weights_only=False), CONTENT)
    assert [entry.name for entry in Path(path).parent.iterdir()] == ["last.ckpt"]


def test_a_new_checkpoint_takes_the_place_of_the_old(saved):
    FILES.save_checkpoint({"epoch": 4}, saved)
    assert FILES.load_checkpoint(saved) == {"epoch": 4}


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt(), RuntimeError("torch")])
def test_a_save_that_fails_leaves_the_checkpoint_before(saved, monkeypatch, error):
    whole = saved.read_bytes()

    def half(content: object, file: BinaryIO) -> None:
        file.write(whole[: len(whole) // 2])
        raise error

    monkeypatch.setattr(checkpoints.torch, "save", half)
    with pytest.raises(type(error)):
        FILES.save_checkpoint({"epoch": 4}, saved)
    monkeypatch.undo()
    assert saved.read_bytes() == whole
    assert same(FILES.load_checkpoint(saved), CONTENT)
    assert [entry.name for entry in saved.parent.iterdir()] == ["last.ckpt"]


def test_a_first_save_that_fails_leaves_nothing(tmp_path, monkeypatch):
    def half(content: object, file: BinaryIO) -> None:
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoints.torch, "save", half)
    with pytest.raises(OSError, match="No space left"):
        FILES.save_checkpoint(CONTENT, tmp_path / "last.ckpt")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("share", [0, 0.01, 0.3, 0.5, 0.9, 0.999])
def test_a_file_cut_short_is_one_sentence(saved, share):
    content = saved.read_bytes()
    saved.write_bytes(content[: int(share * len(content))])
    refused(saved)


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.6])
def test_a_flipped_bit_is_one_sentence(saved, share):
    content = bytearray(saved.read_bytes())
    content[int(share * len(content))] ^= 1
    saved.write_bytes(content)
    try:
        loaded = FILES.load_checkpoint(saved)
    except ValueError as error:
        assert re.fullmatch(r"`.*last\.ckpt` cannot be read as a checkpoint: .*[^.]\.", str(error))  # noqa: PT017
    else:
        assert same(loaded, CONTENT)  # it was in the padding between parts


def test_a_flipped_bit_of_a_parameter_names_the_damaged_part(saved):
    content = bytearray(saved.read_bytes())
    place = content.index(CONTENT["state"]["weight"].numpy().tobytes())
    content[place + 1002] ^= 1
    saved.write_bytes(content)
    refused(saved, "its part .*data/0 is damaged")


@pytest.mark.parametrize("content", [b"", b"not a checkpoint", bytes(4096), b"PK\x03\x04" + bytes(100)])
def test_another_file_is_one_sentence(tmp_path, content):
    (tmp_path / "x.ckpt").write_bytes(content)
    refused(tmp_path / "x.ckpt")


def test_no_file_and_a_folder_are_one_sentence(tmp_path):
    refused(tmp_path / "none.ckpt", "FileNotFoundError")
    refused(tmp_path, "IsADirectoryError")


class Trap:
    """Does harm when it is unpickled."""

    def __reduce__(self) -> tuple:
        return (Path.touch, (Path("sprung"),))


@pytest.mark.parametrize("asked", [None, True, False])
def test_objects_are_refused_whatever_is_asked(tmp_path, monkeypatch, asked):
    monkeypatch.chdir(tmp_path)
    torch.save({"epoch": 3, "trap": Trap()}, "trap.ckpt")
    with pytest.raises(ValueError, match=r"^`trap.ckpt` cannot be read as a checkpoint: UnpicklingError\.$"):
        FILES.load_checkpoint("trap.ckpt", weights_only=asked)
    assert not Path("sprung").exists()


@pytest.mark.parametrize("legacy", [True, False], ids=["torch", "pickle"])
def test_bare_pickles_are_refused(tmp_path, monkeypatch, legacy):
    monkeypatch.chdir(tmp_path)
    if legacy:
        torch.save({"trap": Trap()}, "trap.ckpt", _use_new_zipfile_serialization=False)
    else:
        Path("trap.ckpt").write_bytes(pickle.dumps({"trap": Trap()}))
    refused(Path("trap.ckpt"))
    assert not Path("sprung").exists()


class Line(LightningModule):
    """The smallest model that a trainer takes."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch: torch.Tensor, index: int) -> torch.Tensor:
        return self.layer(batch).square().mean()

    def validation_step(self, batch: torch.Tensor, index: int) -> None:
        self.log("error", 1.0 / (1 + self.current_epoch))  # better every epoch, else the trainer would not save

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=0.1)


@pytest.mark.filterwarnings(
    "ignore:.*LeafSpec:FutureWarning", "ignore:.*num_workers", "ignore:.*exists and is not empty"
)
@pytest.mark.filterwarnings("ignore:The number of training batches")
def test_checkpoints_of_a_trainer_are_read_without_objects(tmp_path):
    rows = DataLoader(torch.ones(4, 1), batch_size=2)

    def trained(epochs: int, start: Path | None = None) -> Line:
        torch.manual_seed(0)
        model = Line()
        trainer = Trainer(
            max_epochs=epochs,
            accelerator="cpu",
            callbacks=[
                ModelCheckpoint(tmp_path, "best", monitor="error", save_last=True, enable_version_counter=False),
                EarlyStopping("error", patience=5),
            ],
            plugins=[AtomicCheckpoints()],
            logger=False,
            enable_model_summary=False,
            enable_progress_bar=False,
            num_sanity_val_steps=0,
            default_root_dir=tmp_path,
        )
        trainer.fit(model, rows, rows, ckpt_path=start)
        return model

    wanted = trained(4).state_dict()
    trained(2)
    content = FILES.load_checkpoint(tmp_path / "last.ckpt")
    assert content["epoch"] == 1
    assert {"state_dict", "optimizer_states", "callbacks"} <= content.keys()
    assert same(dict(trained(4, tmp_path / "last.ckpt").state_dict()), dict(wanted))
    assert not [entry for entry in tmp_path.iterdir() if "partial" in entry.name]
