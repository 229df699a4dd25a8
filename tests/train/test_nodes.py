"""Which processes a command starts: its options, its environment or torchrun say so, and nonsense is one sentence."""

import re

import pytest
import torch

from shortlist.errors import InputError
from shortlist.train import FitOptions, fit
from shortlist.train.checkpoints import run_fingerprint
from shortlist.train.distributed.processes import Topology
from tests.train.small_data import classes, quick

NODE = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "NODE_RANK": "1"}
LAUNCHED = {
    "TORCHELASTIC_RUN_ID": "none",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29500",
    "WORLD_SIZE": "6",
    "LOCAL_WORLD_SIZE": "3",
    "GROUP_RANK": "1",
    "LOCAL_RANK": "2",
}


@pytest.fixture
def environment(monkeypatch):
    """Sets variables; all others that matter are gone."""
    for name in (*NODE, *LAUNCHED):
        monkeypatch.delenv(name, raising=False)

    def change(variables: dict[str, str]) -> None:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return change


def test_alone_a_command_starts_all_processes_at_a_port_that_is_free(environment):
    place = Topology.of(FitOptions(processes=3))
    assert place == Topology(1, 3, 0, (0, 1, 2), "127.0.0.1", None)
    assert (place.world_size, place.is_first, place.is_alone) == (3, True, True)
    environment(NODE)  # of no meaning for one node
    assert Topology.of(FitOptions()) == Topology()


@pytest.mark.parametrize("node", [0, 1])
def test_a_node_starts_its_own_processes(environment, node):
    environment({**NODE, "NODE_RANK": str(node)})
    place = Topology.of(FitOptions(processes=2, nodes=2))
    assert place == Topology(2, 2, node, (0, 1), "127.0.0.1", 29500)
    assert (place.world_size, place.is_first, place.is_alone) == (4, node == 0, False)


def test_under_torchrun_a_command_starts_the_process_that_it_stands_for(environment):
    environment(LAUNCHED)
    for options in (FitOptions(), FitOptions(processes=3, nodes=2)):
        place = Topology.of(options)
        assert place == Topology(2, 3, 1, (2,), "127.0.0.1", 29500)
        assert (place.world_size, place.is_first, place.is_alone) == (6, False, False)
    environment({"GROUP_RANK": "0", "LOCAL_RANK": "0"})
    assert Topology.of(FitOptions(strategy="fsdp")).is_first
    for options, said in ((FitOptions(processes=2), "`processes`"), (FitOptions(nodes=3), "`nodes`")):
        with pytest.raises(ValueError, match=rf"^{said} must be left to torchrun, which says \d; got \d\.$"):
            Topology.of(options)


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({"MASTER_ADDR": ""}, "MASTER_ADDR must be set in the environment with `nodes` 2: the address of node 0."),
        ({"MASTER_PORT": " "}, "MASTER_PORT must be set in the environment with `nodes` 2: a free port of node 0."),
        ({"NODE_RANK": ""}, "NODE_RANK must be set in the environment with `nodes` 2: the rank of this node."),
        ({"NODE_RANK": "2"}, "NODE_RANK must be the rank of this node, an integer in [0, 1]; got '2'."),
        ({"NODE_RANK": "-1"}, "NODE_RANK must be the rank of this node, an integer in [0, 1]; got '-1'."),
        ({"MASTER_PORT": "0"}, "MASTER_PORT must be a free port of node 0, an integer in [1, 65535]; got '0'."),
        ({"MASTER_PORT": "ssh"}, "MASTER_PORT must be a free port of node 0, an integer in [1, 65535]; got 'ssh'."),
        ({"MASTER_ADDR": "a..b"}, "MASTER_ADDR must be the address of node 0; got 'a..b': "),
    ],
)
def test_variables_that_make_no_sense_are_one_sentence_before_anything_is_done(environment, variables, sentence):
    environment({**NODE, **variables})
    with pytest.raises(ValueError, match=re.escape(sentence)) as caught:
        fit(classes(), quick(nodes=2), folder="never made")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"strategy": "zero"}, "`strategy` must be one of ddp, fsdp; got 'zero'."),
        ({"nodes": 0}, "`nodes` must be at least 1; got 0."),
        (
            {"strategy": "fsdp", "precision": "16-mixed", "processes": 2},
            "`precision` must be 32-true or bf16-mixed with `strategy` 'fsdp'; got '16-mixed'.",
        ),
    ],
)
def test_options_that_cannot_be_are_refused(options, sentence):
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        FitOptions(**options)
    with pytest.raises(InputError, match=r"^`nodes` must be an integer; got 1\.5\.$"):
        FitOptions(nodes=1.5)  # pyright: ignore


def test_what_one_process_cannot_do_is_refused(environment):
    with pytest.raises(ValueError, match=r"^`strategy` 'fsdp' must have several `processes` or `nodes` .*; got 1\.$"):
        fit(classes(), quick(strategy="fsdp"))
    environment(NODE)
    with pytest.raises(ValueError, match=r"^`folder` must be given with several nodes; got None\.$"):
        fit(classes(), quick(nodes=2))


@pytest.mark.parametrize(("cards", "several", "one"), [(0, "cpu", "auto"), (1, "cpu", "auto"), (2, "cuda", "auto")])
def test_graphics_cards_are_used_where_each_process_can_have_one(monkeypatch, cards, several, one):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: cards)
    assert Topology(1, 2, 0, (0, 1)).accelerator == several
    assert Topology().accelerator == one


def test_machines_and_strategy_do_not_tell_runs_apart():
    data, alone = classes(), quick()
    shared = quick(processes=2, nodes=3, strategy="fsdp")
    assert run_fingerprint(data, shared) == run_fingerprint(data, alone)
    assert {"nodes", "strategy"}.isdisjoint(alone.to_json())
