"""Where a run's processes live."""

from typing import Literal

from configs.base import Kind, one_of


class ClusterConfig(Kind):
    """Whose machines a run takes; built with the state folder, as a Cluster of `infra/cluster`."""


class LocalClusterConfig(ClusterConfig):
    """This machine alone: nothing of it can be reached from another."""

    kind: Literal["local"] = "local"
    owner = "infra.cluster.local:LocalCluster"


Cluster = one_of(ClusterConfig, LocalClusterConfig)
