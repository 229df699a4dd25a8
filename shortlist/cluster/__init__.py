"""Many tasks on the processes of this machine, on a Dask cluster or on a Ray cluster; lost ones are repeated."""

from shortlist.cluster.address import check_cluster
from shortlist.cluster.tasks import run_tasks

__all__ = ["check_cluster", "run_tasks"]
