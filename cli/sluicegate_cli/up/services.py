"""The processes of `up`, and what each is told."""

from collections.abc import Mapping
from dataclasses import dataclass

from sluicegate_cli.addresses import RunningState
from sluicegate_cli.up.child import Child
from sluicegate_cli.up.engines import Engines
from sluicegate_cli.up.options import UpOptions
from sluicegate_cli.up.ports import (
    GRPC_PORTS,
    METRICS_PORTS,
    SIMULATOR_PORT,
    WEB_PORT,
    asked,
    usual_or_free,
)
from sluicegate_cli.up.screen import Screen

STOP_GROUPS = (
    ("demo_worker", "export_worker", "poller"),
    ("ingest_service", "task_api"),
    ("collection_writer",),
    ("lease_service",),
    ("simulator",),
)
"""Who is asked to stop together, first group first: nobody ends before those who send to it."""

SIMULATOR = "simulator"
DEMO_WORKER = "demo_worker"

_DRAIN = "20s"
_GRPC_DRAIN_SECONDS = "5"


@dataclass(frozen=True, slots=True)
class Plan:
    """Where everything will listen."""

    grpc: Mapping[str, int]
    metrics: Mapping[str, int]
    web: int
    simulator: int

    def address(self, service: str) -> str:
        """Return the address of one gRPC server."""
        return f"127.0.0.1:{self.grpc[service]}"

    @property
    def web_url(self) -> str:
        """Address of the web console and the HTTP API."""
        return f"http://127.0.0.1:{self.web}"

    @property
    def simulator_url(self) -> str:
        """Address of the gateway simulator."""
        return f"http://127.0.0.1:{self.simulator}"


def choose_ports(options: UpOptions, screen: Screen) -> Plan:
    """Choose every port; raises CommandError when one that was asked for is taken."""
    web = (
        asked("web console", options.port) if options.port else usual_or_free("web console", WEB_PORT, screen)
    )
    return Plan(
        grpc={name: usual_or_free(name, port, screen) for name, port in GRPC_PORTS.items()},
        metrics={
            name: usual_or_free(f"{name} metrics", port, screen) for name, port in METRICS_PORTS.items()
        },
        web=web,
        simulator=usual_or_free("gateway simulator", SIMULATOR_PORT, screen) if options.demo else 0,
    )


def children(options: UpOptions, engines: Engines, plan: Plan) -> list[Child]:
    """Return every process, in start order; none is started."""
    shared = _shared(options, engines, plan)
    services = [
        Child(
            name=name,
            arguments=[name],
            environment=shared | _own(name, options, plan),
            log=options.logs / f"{name}.log",
            address=plan.address(name),
            metrics_port=plan.metrics[name],
        )
        for name in GRPC_PORTS
    ]
    return [*_demo(options, plan, shared), *services] if options.demo else services


def state_of(options: UpOptions, engines: Engines, plan: Plan, *, pid: int, birth: str) -> RunningState:
    """Return what other terminals need to know."""
    return RunningState(
        pid=pid,
        birth=birth,
        data_dir=options.data_dir,
        services={name: plan.address(name) for name in GRPC_PORTS if name != "export_worker"},
        postgres_dsn=engines.postgres_dsn,
        redis_url=engines.redis_url,
        nsqd=engines.nsqd,
        nsqd_http=engines.nsqd_http,
        simulator=plan.simulator_url if options.demo else "",
        web=plan.web_url,
        span_store=str(options.data_dir / "spans.sqlite"),
        exports=str(options.data_dir / "files"),
        metrics=dict(plan.metrics),
    )


def _shared(options: UpOptions, engines: Engines, plan: Plan) -> dict[str, str]:
    peers = {
        f"SLUICEGATE_{name.upper()}": plan.address(name) for name in GRPC_PORTS if name != "export_worker"
    }
    return {
        "SLUICEGATE_POSTGRES_DSN": engines.postgres_dsn,
        "SLUICEGATE_REDIS_URL": engines.redis_url,
        "SLUICEGATE_NSQD": engines.nsqd,
        "SLUICEGATE_NSQD_HTTP": engines.nsqd_http,
        "SLUICEGATE_SPAN_STORE": str(options.data_dir / "spans.sqlite"),
        "SLUICEGATE_LOG_JSON": "true",
        "LEASE_SERVICE_SLOTS__RELEARN_AFTER_RESTART": str(not engines.redis_keeps_leases).lower(),
        **peers,
    }


def _own(name: str, options: UpOptions, plan: Plan) -> dict[str, str]:
    prefix = name.upper()
    own = {
        f"{prefix}_GRPC__PORT": str(plan.grpc[name]),
        f"{prefix}_GRPC__DRAIN_SECONDS": _GRPC_DRAIN_SECONDS,
        f"{prefix}_METRICS_PORT": str(plan.metrics[name]),
        f"{prefix}_DRAIN_TIMEOUT": _DRAIN,
    }
    if name == "task_api":
        own["TASK_API_HTTP__PORT"] = str(plan.web)
    if name == "export_worker":
        own["EXPORT_WORKER_EXPORTS__LOCATION"] = str(options.data_dir / "files")
    return own


def _demo(options: UpOptions, plan: Plan, shared: Mapping[str, str]) -> list[Child]:
    simulator = [
        "gateways.simulator",
        *("--port", str(plan.simulator)),
        *("--cards", str(options.cards)),
        *("--scenario", options.scenario),
    ]
    worker = ["sluicegate_client.demo_worker", "--target", plan.address("task_api")]
    return [
        Child(SIMULATOR, simulator, {}, options.logs / "simulator.log"),
        Child(DEMO_WORKER, worker, shared, options.logs / "demo_worker.log"),
    ]
