"""Start everything, show it, keep it running, stop it."""

import asyncio
import os
import signal
from collections.abc import Coroutine
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from devengines.child import birth_of
from devengines.migrate import migrate
from servicekit.nsq.admin import NsqAdmin
from sluicegate_cli.addresses import STATE_FILE, Addresses, RunningState, find
from sluicegate_cli.clients import Clients
from sluicegate_cli.outcome import ExitCode
from sluicegate_cli.topics import TOPICS
from sluicegate_cli.up.child import Child
from sluicegate_cli.up.demo import prepare
from sluicegate_cli.up.engines import Engines, start_engines
from sluicegate_cli.up.lock import port_choice
from sluicegate_cli.up.options import UpOptions
from sluicegate_cli.up.ports import asked
from sluicegate_cli.up.rates import Rates
from sluicegate_cli.up.readiness import wait_http, wait_serving
from sluicegate_cli.up.screen import Row, Screen
from sluicegate_cli.up.services import DEMO_WORKER, SIMULATOR, Plan, children, choose_ports, state_of
from sluicegate_cli.up.supervisor import Supervisor

Result = TypeVar("Result")

_LINE_SECONDS = 5.0


def up(options: UpOptions) -> ExitCode:
    """Run everything until a signal, or for the asked time; returns the exit code. Blocks; hold the data lock.

    Raises:
        CommandError: something could not start; everything that had started is stopped again.
    """
    return asyncio.run(_Run(options).whole())


class _Run:
    def __init__(self, options: UpOptions) -> None:
        self._options = options
        self._screen = Screen()
        self._engines = Engines()
        self._supervisor = Supervisor(self._engines, self._screen)
        self._stopping = asyncio.Event()

    async def whole(self) -> ExitCode:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._on_signal)
        try:
            started = await self._unless_stopping(self._start())
            if started is not None:
                await self._unless_stopping(self._live(started))
        finally:
            (self._options.data_dir / STATE_FILE).unlink(missing_ok=True)
            await self._end()
        return ExitCode.OK

    async def _end(self) -> None:
        if not self._supervisor.children and not self._engines.own:
            return
        self._screen.say("stopping: what is held is finished first (Ctrl-C again ends everything at once)")
        await self._supervisor.stop()
        self._screen.say(f"everything is stopped; the data is kept in {self._options.data_dir}")

    async def _start(self) -> Plan:
        self._screen.say(f"data: {self._options.data_dir}")
        if self._options.port:
            asked("web console", self._options.port)
        await start_engines(self._engines, self._options, self._screen)
        applied = migrate(self._engines.postgres_dsn)
        self._screen.say(f"migrations: {len(applied)} applied" if applied else "migrations: up to date")
        await NsqAdmin(self._engines.nsq_settings).prime(TOPICS)
        async with port_choice(self._screen.say):
            plan = choose_ports(self._options, self._screen)
            everyone = children(self._options, self._engines, plan)
            services = [child for child in everyone if child.name != DEMO_WORKER]
            self._start_all(services)
            await self._wait_all(services, plan)
        state = self._save_state(plan)
        done = await self._prepare_demo(plan, state)
        self._start_all([child for child in everyone if child.name == DEMO_WORKER])
        self._supervisor.on_restart = partial(self._save_state, plan)
        self._save_state(plan)
        self._show(plan, done)
        return plan

    def _start_all(self, everyone: list[Child]) -> None:
        for child in everyone:
            self._supervisor.children.append(child)
            child.start()

    async def _wait_all(self, services: list[Child], plan: Plan) -> None:
        auth = find().auth
        for child in services:
            if child.name == SIMULATOR:
                await wait_http(child, f"{plan.simulator_url}/_control/stats")
            else:
                await wait_serving(child, auth)

    def _save_state(self, plan: Plan) -> RunningState:
        pid = os.getpid()
        state = state_of(self._options, self._engines, plan, pid=pid, birth=birth_of(pid))
        pids = {child.name: child.pid for child in self._supervisor.children}
        pids |= {engine.name: engine.pid or 0 for engine in self._engines.own}
        state = replace(state, pids=pids)
        state.save()
        return state

    async def _prepare_demo(self, plan: Plan, state: RunningState) -> str:
        if not self._options.demo:
            return ""
        found = find()
        addresses = Addresses(
            services=state.services,
            auth=found.auth,
            tenant=found.tenant,
            postgres_dsn=found.postgres_dsn,
            span_store=state.span_store,
            web=state.web,
            state=state,
        )
        async with Clients(addresses) as clients:
            return await prepare(clients, self._options, plan.simulator_url)

    def _show(self, plan: Plan, done: str) -> None:
        rows = list(self._engines.rows)
        for child in self._supervisor.children:
            address = plan.simulator_url if child.name == SIMULATOR else child.address or "-"
            rows.append(Row(child.name, address, f"running, pid {child.pid}"))
        rows.append(Row("web console", f"{plan.web_url}/console", "open it in a browser"))
        self._screen.table(rows)
        if done:
            self._screen.say(done)
        self._screen.say(
            f"logs: {self._options.logs}; try in another terminal: sluicegate cards list, backlog, tasks create --watch"
        )

    async def _live(self, plan: Plan) -> None:
        rates = Rates(plan.metrics, NsqAdmin(self._engines.nsq_settings))
        watching = asyncio.create_task(self._supervisor.watch())
        try:
            async with asyncio.timeout(self._options.run_for):
                while not watching.done():
                    self._screen.live(await rates.line())
                    await asyncio.sleep(_LINE_SECONDS)
            await watching
        except TimeoutError:
            self._screen.say(f"{self._options.run_for:g} s are over" if self._options.run_for else "")
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def _unless_stopping(self, work: Coroutine[Any, Any, Result]) -> Result | None:
        """Run work until it is done or a signal came; then it is cancelled."""
        task = asyncio.ensure_future(work)
        stop = asyncio.create_task(self._stopping.wait())
        await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            return None
        return task.result()

    def _on_signal(self) -> None:
        if self._stopping.is_set():
            self._screen.say("ending everything at once")
            self._supervisor.kill()
            os._exit(ExitCode.INTERRUPTED)
        self._stopping.set()
