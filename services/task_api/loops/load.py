"""Shows what waits in every channel."""

from servicekit.metrics import Metric, gauge
from task_api.domain.ports import ChannelStore


class LoadGauge:
    """One round counts the waiting tasks of every channel for the metrics."""

    def __init__(self, channels: ChannelStore) -> None:
        self._channels = channels

    async def run_once(self) -> None:
        """Count."""
        for name, load in (await self._channels.loads()).items():
            gauge(Metric.TASKS_QUEUED).labels(name).set(load.ready + load.deferred)
