"""A Redis Cluster of three nodes without replicas, from the same binary as the single engine."""

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis
import redis.exceptions

from devengines.ports import LOOPBACK, free_port
from devengines.valkey import ValkeyProcess

NODES = 3
SLOTS = 16_384

_READY_SECONDS = 60.0
_PAUSE_SECONDS = 0.05


class ClusterNode(ValkeyProcess):
    """One node; its bus listens on a free port of its own."""

    def __init__(self, data_dir: Path) -> None:
        super().__init__(data_dir)
        self.bus_port = 0

    def _command(self) -> list[str]:
        self.bus_port = free_port()
        return [
            *super()._command(),
            *("--cluster-enabled", "yes"),
            *("--cluster-port", str(self.bus_port)),
            *("--cluster-config-file", str(self.data_dir / "nodes.conf")),
            *("--cluster-node-timeout", "5000"),
        ]


class ClusterEngine:
    """Three nodes that own a third of the hash slots each."""

    def __init__(self, folder: Path) -> None:
        self.nodes = [ClusterNode(folder / f"node{number}") for number in range(NODES)]

    @property
    def url(self) -> str:
        return f"redis+cluster://{LOOPBACK}:{self.nodes[0].port}"

    def start(self) -> None:
        for node in self.nodes:
            node.start()
        clients = [redis.Redis(host=LOOPBACK, port=node.port, decode_responses=True) for node in self.nodes]
        try:
            for number, client in enumerate(clients):
                first, end = SLOTS * number // NODES, SLOTS * (number + 1) // NODES
                client.execute_command("CLUSTER", "ADDSLOTSRANGE", first, end - 1)
                client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            for node in self.nodes[1:]:
                clients[0].execute_command("CLUSTER", "MEET", LOOPBACK, node.port, node.bus_port)
            deadline = time.monotonic() + _READY_SECONDS
            while not all(_is_ready(client) for client in clients):
                if time.monotonic() > deadline:
                    raise AssertionError("the cluster did not come together")
                time.sleep(_PAUSE_SECONDS)
        finally:
            for client in clients:
                client.close()

    def stop(self) -> None:
        for node in self.nodes:
            node.proceed()
            node.stop()


@contextmanager
def redis_cluster() -> Iterator[ClusterEngine]:
    """Run one."""
    folder = Path(tempfile.mkdtemp(prefix="slc"))
    engine = ClusterEngine(folder)
    try:
        engine.start()
        yield engine
    finally:
        engine.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _is_ready(client: redis.Redis) -> bool:
    text = client.execute_command("CLUSTER", "INFO")
    return "cluster_state:ok" in text and f"cluster_known_nodes:{NODES}" in text
