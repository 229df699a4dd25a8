"""Run tasks on local processes, a Dask cluster or a Ray cluster, and retry those that are lost."""

from shortlist.cluster.address import check_cluster
from shortlist.cluster.tasks import run_tasks

__all__ = ["check_cluster", "run_tasks"]
