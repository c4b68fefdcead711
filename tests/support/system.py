"""A whole system as a user runs it: `sluicegate up` on a data directory of its own."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import asyncpg

from servicekit.nsq.admin import NsqAdmin
from servicekit.settings import NsqSettings
from tests.support.cli import Ended, clean_environment, command

FLEET = ("--cards", "60", "--poll-interval", "3")
"""Options of a small fleet that is polled often."""

QUICK = {
    "POLLER_STEP__SLOT_TTL": "6s",
    "POLLER_SYNC__CARDS_EVERY": "1s",
    "POLLER_SYNC__ACCOUNTS_EVERY": "1s",
}
"""Variables of a system whose slots of dead processes are free soon, and whose fleet is looked at often."""

READY_SECONDS = 240.0
STOP_SECONDS = 120.0
_POLL_SECONDS = 0.1
_STATE = "state.json"


class System:
    """One `sluicegate up` on a data directory of its own; may be stopped and started again."""

    def __init__(self, data_dir: Path, *options: str, variables: Mapping[str, str] | None = None) -> None:
        self.data_dir = data_dir
        self._options = options
        self._variables = dict(variables or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._output = data_dir.with_suffix(".out")

    @property
    def output(self) -> str:
        """Everything that `up` has printed."""
        return self._output.read_text(errors="replace") if self._output.exists() else ""

    @property
    def state(self) -> dict[str, Any]:
        """What `up` tells other terminals."""
        found: dict[str, Any] = json.loads((self.data_dir / _STATE).read_text())
        return found

    def start(self) -> None:
        """Start and wait until everything serves."""
        before = self.output.count("logs:")
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "sluicegate_cli",
                    "up",
                    "--data-dir",
                    str(self.data_dir),
                    *self._options,
                ],
                env=clean_environment(**self._variables),
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        deadline = time.monotonic() + READY_SECONDS
        while self.output.count("logs:") <= before:
            assert self._process.poll() is None, f"up has ended:\n{self.output}"
            assert time.monotonic() < deadline, f"not ready after {READY_SECONDS} s:\n{self.output}"
            time.sleep(_POLL_SECONDS)

    def stop(self) -> int:
        """Ask for the end, as Ctrl-C does, and wait for it."""
        assert self._process is not None
        process, self._process = self._process, None
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        try:
            return process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(f"did not stop within {STOP_SECONDS} s:\n{self.output}") from None

    def kill(self) -> list[int]:
        """End `up` as `kill -9` does; returns the ids of the processes that it ran."""
        assert self._process is not None
        pids = [pid for pid in self.state["pids"].values() if pid]
        self._process.kill()
        self._process.wait()
        self._process = None
        return pids

    def kill_child(self, name: str) -> int:
        """End one process as `kill -9` does; returns its id."""
        pid = int(self.state["pids"][name])
        os.kill(pid, signal.SIGKILL)
        return pid

    def command(self, *arguments: str, within: float = 60) -> Ended:
        """Run the `sluicegate` command as another terminal would, without any address."""
        return command(*arguments, variables={"SLUICEGATE_DATA_DIR": str(self.data_dir)}, within=within)

    def simulator(self, path: str, method: str = "GET") -> Any:
        """Ask the gateway simulator's control interface."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        url = f"{self.state['simulator']}{path}"
        request = urllib.request.Request(url, method=method)  # noqa: S310 - our own simulator
        with opener.open(request, timeout=5) as response:
            return json.loads(response.read() or b"null")

    async def rows(self, statement: str, *values: Any) -> list[asyncpg.Record]:
        """Run one statement."""
        connection = await asyncpg.connect(self.state["postgres_dsn"])
        try:
            return await connection.fetch(statement, *values)
        finally:
            await connection.close()

    async def number(self, statement: str, *values: Any) -> int:
        """Run one statement that answers one number."""
        return int((await self.rows(statement, *values))[0][0])

    def log_lines(self, *levels: str) -> Iterator[str]:
        """Yield the log lines of these levels."""
        for path in sorted((self.data_dir / "logs").glob("*.log")):
            for line in path.read_text(errors="replace").splitlines():
                if any(f'"level": "{level}"' in line for level in levels) or "Traceback" in line:
                    yield f"{path.name}: {line}"

    async def switch_polling(self, *, on: bool) -> None:
        """Switch every card on or off; off waits until nothing is polled, published or collected any more."""
        file = self.data_dir / "switch.csv"
        cards = await self.rows("SELECT card_id, account_id, msisdn FROM card")
        word = "yes" if on else "no"
        lines = [f"{card['card_id']},{card['account_id']},{card['msisdn']},{word}" for card in cards]
        file.write_text("card_id,account_id,msisdn,polling_enabled\n" + "\n".join(lines) + "\n")
        self.command("cards", "import", str(file)).assert_clear(0)
        if not on:
            await self.settled()

    async def waiting(self, topic: str) -> int:
        """Return how many messages of a topic are not finished."""
        host_port = NsqSettings(nsqd_tcp=self.state["nsqd"], nsqd_http=self.state["nsqd_http"])
        found = (await NsqAdmin(host_port).stats()).get(topic)
        return found.depth + sum(row.backlog for row in found.channels.values()) if found else 0

    async def settled(self, within: float = 60) -> None:
        """Wait until the counts of polls, applied and collected rows stand still and no message waits."""
        deadline = time.monotonic() + within
        last: Any = None
        while time.monotonic() < deadline:
            counts = (
                await self.number("SELECT count(*) FROM ingest_inbox"),
                await self.number("SELECT count(*) FROM collection_record"),
                await self.number("SELECT count(*) FROM ingest_outbox WHERE published_at IS NULL"),
            )
            waiting = sum([await self.waiting(topic) for topic in ("card.ingest", "card.collection")])
            if waiting == 0 and counts == last:
                return
            last = counts
            await asyncio.sleep(1)
        raise AssertionError(f"does not settle: {last}")


@contextmanager
def running(data_dir: Path, *options: str, variables: Mapping[str, str] | None = None) -> Iterator[System]:
    """Run a system and stop it afterwards, whatever happened."""
    system = System(data_dir, *options, variables=variables)
    system.start()
    try:
        yield system
    finally:
        if system._process is not None:
            system.stop()


def alive(pids: Sequence[int]) -> list[int]:
    """Return those that still run."""
    found = []
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state != "Z":
            found.append(pid)
    return found
