"""Optional dependencies that are missing or broken are one sentence, in the package and on the command line."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from shortlist.extras import COMMAND_EXTRAS, MissingExtraError, require
from tests.install.environments import extras
from tests.install.extras_alone import CALLS, NOT_ALONE

ROOT = Path(__file__).parents[1]
FAILURE = "operator torchvision::nms does not exist"
SENTENCE = (
    r"the installed torchvision 0\.1\.2 does not match torch \S+, so `\w+` cannot be imported "
    rf"\({FAILURE}\): install the matching build, or run `pip uninstall torchvision`\."
)


@pytest.fixture
def broken(tmp_path) -> Path:
    """A torchvision that was built for another torch, as it is when it is imported."""
    package = tmp_path / "site" / "torchvision"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from torchvision import _meta_registrations\n")
    (package / "_meta_registrations.py").write_text(f"raise RuntimeError({FAILURE!r})\n")
    about = tmp_path / "site" / "torchvision-0.1.2.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: torchvision\nVersion: 0.1.2\n")
    return tmp_path / "site"


def python(site: Path, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(site), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, cwd=site.parent, env=environment, capture_output=True, text=True)


COMMAND = "import sys; from shortlist.cli import main; sys.exit(main())"


@pytest.mark.slow
def test_a_torchvision_that_does_not_fit_is_one_sentence(broken):
    done = python(broken, COMMAND, "fit", "digits", "--output", "model")
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(rf"shortlist: {SENTENCE}\n", done.stderr), done.stderr
    assert not (broken.parent / "model").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments", [["compare", "digits", "--losses", "lml_nll"], ["predict", "model", "--data", "digits"]]
)
def test_every_command_that_trains_or_measures_says_so(broken, arguments):
    (broken.parent / "model").mkdir()
    (broken.parent / "model" / "model.json").write_text("{}")
    done = python(broken, COMMAND, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(rf"shortlist: {SENTENCE}\n", done.stderr), done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("module", ["shortlist.metrics", "shortlist.train"])
def test_importing_what_needs_it_says_so(broken, module):
    done = python(broken, f"import {module}")
    assert re.fullmatch(rf"shortlist.extras.MissingExtraError: {SENTENCE}", done.stderr.splitlines()[-1]), done.stderr


@pytest.mark.slow
def test_what_does_not_need_it_works(broken):
    done = python(broken, "import shortlist.data, shortlist.sets, shortlist.audit; shortlist.data.digits()")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_module_that_is_missing_is_named_with_what_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "h5py", None)
    sentence = "`h5py` is not installed: run `pip install '.[{}]'` in a checkout of shortlist."
    with pytest.raises(MissingExtraError) as missing:
        require("h5py", extra="data")
    assert str(missing.value) == sentence.format("data")
    assert missing.value.for_commands() == sentence.format("cli")


def test_a_command_names_an_extra_of_its_own_where_cli_does_not_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError) as missing:
        require("ray", extra="cluster")
    assert missing.value.for_commands() == str(missing.value)
    assert "'.[cluster]'" in str(missing.value)


def test_the_extra_of_the_commands_is_the_one_that_messages_assume():
    (listed,) = extras()["cli"]
    assert set(re.fullmatch(r"shortlist\[(.*)\]", listed)[1].split(",")) == COMMAND_EXTRAS


def test_every_extra_is_installed_alone_by_a_target():
    assert CALLS.keys() | NOT_ALONE == extras().keys()


def test_the_way_to_install_is_written_once():
    lines = [line for path in (ROOT / "shortlist").rglob("*.py") for line in path.read_text().splitlines()]
    own = [line for line in lines if re.search(r"pip install ['\"]*(\.|shortlist)|checkout of shortlist", line)]
    assert {line.strip() for line in own if "{" in line} == {
        """return f"run `pip install '{SOURCE}[{extra}]'` in a checkout of shortlist\""""
    }


def test_every_extra_that_a_message_names_exists():
    named = set()
    for path in (ROOT / "shortlist").rglob("*.py"):
        named |= set(re.findall(r'extra="(\w+)"', path.read_text()))
    assert named <= set(extras())


def test_a_module_that_misses_another_or_is_broken_is_told_with_its_reason(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "lacking.py").write_text("import no_such_module\n")
    (tmp_path / "damaged.py").write_text("raise AttributeError('no\\n attribute.')\n")
    sentence = r"^`lacking` cannot be imported: ModuleNotFoundError No module named 'no_such_module'\.$"
    with pytest.raises(ImportError, match=sentence):
        require("lacking", extra="data")
    with pytest.raises(ImportError, match=r"^`damaged` cannot be imported: AttributeError no attribute\.$"):
        require("damaged", extra="data")
