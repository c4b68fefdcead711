"""What `sluicegate up` was asked for."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class Broker(StrEnum):
    """Which message broker to run."""

    AUTO = "auto"
    NSQD = "nsqd"
    DEVBROKER = "devbroker"


class Scenario(StrEnum):
    """How the simulated gateways behave: `gateways.simulator.faults.SCENARIOS`."""

    CALM = "calm"
    DEMO = "demo"
    ROUGH = "rough"
    LYING = "lying"


@dataclass(frozen=True, slots=True)
class UpOptions:
    """What to run and where.

    Attributes:
        port: of the web console; 0 takes the usual one, or any free one when that is taken.
        demo: whether the simulator, the demo fleet and the demo worker run.
        run_for: seconds until everything is stopped again; None runs until a signal.
        poll_interval: of the demo accounts, seconds; None keeps the fleet's own.
    """

    data_dir: Path
    port: int = 0
    cards: int = 1000
    poll_interval: int | None = None
    broker: Broker = Broker.AUTO
    demo: bool = True
    scenario: Scenario = Scenario.DEMO
    run_for: float | None = None

    @property
    def logs(self) -> Path:
        """Where every process writes its log."""
        return self.data_dir / "logs"
