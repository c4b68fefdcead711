"""The main job on the development broker, as on a machine without nsqd and without Go."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.support.reconciliation import answered, assert_everything_once, collected, recorded
from tests.support.system import FLEET, QUICK, running

pytestmark = [pytest.mark.timeout(600)]


async def test_the_development_broker_does_the_same_and_says_loudly_what_it_is() -> None:
    with (
        TemporaryDirectory(prefix="sluicegate-up-") as folder,
        running(Path(folder) / "data", *FLEET, "--broker", "devbroker", variables=QUICK) as system,
    ):
        assert "NO nsqd HERE" in system.output
        await collected(system, 150)
        await system.switch_polling(on=False)
        assert await recorded(system, "ingest_inbox") == answered(system)
        await assert_everything_once(system)
        await system.switch_polling(on=True)
        await collected(system, 30)
        assert system.stop() == 0
        assert list(system.log_lines("error", "critical")) == []
        system.start()
        await system.switch_polling(on=False)
        await assert_everything_once(system)
