"""Which processes a command starts: options, environment or torchrun decide, and invalid values are refused."""

import re

import pytest
import torch

from shortlist.errors import InputError
from shortlist.train import FitOptions, fit
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


def test_alone_a_command_starts_all_processes(environment):
    topology = Topology.of(FitOptions(processes=3))
    assert topology == Topology(1, 3, 0, (0, 1, 2), "127.0.0.1", None)
    assert (topology.world_size, topology.is_first, topology.is_alone) == (3, True, True)
    environment(NODE)  # of no meaning for one node
    assert Topology.of(FitOptions()) == Topology()


@pytest.mark.parametrize("node", [0, 1])
def test_a_node_starts_its_own_processes(environment, node):
    environment({**NODE, "NODE_RANK": str(node)})
    topology = Topology.of(FitOptions(processes=2, nodes=2))
    assert topology == Topology(2, 2, node, (0, 1), "127.0.0.1", 29500)
    assert (topology.world_size, topology.is_first, topology.is_alone) == (4, node == 0, False)


def test_under_torchrun_a_command_is_one_process(environment):
    environment(LAUNCHED)
    for options in (FitOptions(), FitOptions(processes=3, nodes=2)):
        topology = Topology.of(options)
        assert topology == Topology(2, 3, 1, (2,), "127.0.0.1", 29500)
        assert (topology.world_size, topology.is_first, topology.is_alone) == (6, False, False)
    environment({"GROUP_RANK": "0", "LOCAL_RANK": "0"})
    assert Topology.of(FitOptions(strategy="fsdp")).is_first
    for options, said in ((FitOptions(processes=2), "`processes`"), (FitOptions(nodes=3), "`nodes`")):
        with pytest.raises(InputError, match=rf"^{said} must be left to torchrun, which says \d; got \d\.$"):
            Topology.of(options)


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({"MASTER_ADDR": ""}, "MASTER_ADDR must be set in the environment with `nodes` 2: the address of node 0."),
        ({"NODE_RANK": ""}, "NODE_RANK must be set in the environment with `nodes` 2: the rank of this node."),
        ({"NODE_RANK": "2"}, "NODE_RANK must be the rank of this node, an integer in [0, 1]; got '2'."),
        ({"MASTER_PORT": "0"}, "MASTER_PORT must be a free port of node 0, an integer in [1, 65535]; got '0'."),
        ({"MASTER_PORT": "ssh"}, "MASTER_PORT must be a free port of node 0, an integer in [1, 65535]; got 'ssh'."),
        ({"MASTER_ADDR": "a..b"}, "MASTER_ADDR must be the address of node 0; got 'a..b': "),
    ],
)
def test_invalid_variables_are_refused_before_anything_is_done(environment, variables, sentence):
    environment({**NODE, **variables})
    with pytest.raises(InputError, match=re.escape(sentence)) as caught:
        fit(classes(), quick(nodes=2), folder="never made")
    assert "\n" not in str(caught.value)


def test_several_processes_and_a_folder_are_required_where_they_are_needed(environment):
    with pytest.raises(InputError, match=r"^`strategy` 'fsdp' must have several `processes` or `nodes` .*; got 1\.$"):
        fit(classes(), quick(strategy="fsdp"))
    environment(NODE)
    with pytest.raises(InputError, match=r"^`folder` must be given with several nodes; got None\.$"):
        fit(classes(), quick(nodes=2))


@pytest.mark.parametrize(("cards", "several", "one"), [(0, "cpu", "auto"), (1, "cpu", "auto"), (2, "cuda", "auto")])
def test_gpus_are_used_if_each_process_can_have_one(monkeypatch, cards, several, one):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: cards)
    assert Topology(1, 2, 0, (0, 1)).accelerator == several
    assert Topology().accelerator == one
