"""`sluicegate slots`: who holds what, how much there is, and why somebody waits."""

from collections.abc import Sequence
from typing import Annotated

import typer

from sluicegate.lease.v1 import lease_pb2
from sluicegate_cli.clients import Clients, actor, ask
from sluicegate_cli.outcome import CommandError
from sluicegate_cli.output import JsonFlag, plain, print_fields, print_json, print_rows, stdout

app = typer.Typer(name="slots", help="Slots: holders, policies, pause, release.", no_args_is_help=True)

PoolArgument = Annotated[str, typer.Argument(help="The pool, such as tasks or gateway:harbor.")]
ReasonOption = Annotated[str, typer.Option(help="Why; written to the audit.")]

_POLICY_COLUMNS = ("pool", "scope", "capacity", "max_lifetime_ms", "version", "paused", "updated_at")
_HOLDER_COLUMNS = ("token", "owner", "job", "scopes", "weight", "age_ms", "remaining_ms", "fence")
_WAITER_COLUMNS = (
    *(
        "position",
        "token",
        "tenant",
        "owner",
        "job",
        "priority",
        "scopes",
        "weight",
        "age_ms",
        "remaining_ms",
    ),
)
_SCOPE_COLUMNS = ("scope", "capacity", "used", "holder_count", "next_expiry_ms", "waiting_count")


@app.command("list")
def list_slots(
    pool: Annotated[str, typer.Argument(help="List this pool's holders; without it, all policies.")] = "",
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Most to list.")] = 100,
    waiters: Annotated[bool, typer.Option("--waiters", help="List who waits in this pool instead.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """List every pool's capacities, or the holders or the waiters of one pool."""
    if waiters:
        _list_waiters(pool, limit, as_json=as_json)
        return

    async def holders(clients: Clients) -> Sequence[lease_pb2.Holder]:
        request = lease_pb2.ListHoldersRequest(pool=pool, page_size=limit)
        return (await clients.lease.ListHolders(request)).holders

    if pool:
        rows = [plain(holder) for holder in ask(holders)]
        print_rows(rows, _HOLDER_COLUMNS, as_json=as_json, empty=f"Nobody holds a slot of {pool}.")
    else:
        _print_policies(ask(lambda clients: _policies(clients, "")), as_json=as_json)


@app.command("explain")
def explain(
    pool: PoolArgument,
    token: Annotated[
        str, typer.Argument(help="Why does this one wait? From `slots list POOL --waiters`.")
    ] = "",
    as_json: JsonFlag = False,
) -> None:
    """Say what every scope of a pool holds and why a request would wait, or why one that waits does."""

    async def work(clients: Clients) -> lease_pb2.ExplainResponse:
        return await clients.lease.Explain(lease_pb2.ExplainRequest(pool=pool, token=token))

    answer = ask(work)
    if as_json:
        print_json(answer)
        return
    print_rows([plain(scope) for scope in answer.scopes], _SCOPE_COLUMNS, as_json=False, empty="No scopes.")
    stdout.print(f"\n{answer.verdict}", markup=False)


@app.command("policy")
def policy(
    pool: PoolArgument,
    scope: Annotated[str, typer.Argument(help="The scope, such as poll or workers.")] = "",
    capacity: Annotated[int | None, typer.Option(min=0, help="Units that may be held at once.")] = None,
    max_lifetime_ms: Annotated[
        int | None,
        typer.Option(min=0, help="Longest life of a lease; 0 is unlimited; default: as stored, at first 0."),
    ] = None,
    max_waiting: Annotated[
        int | None, typer.Option(min=0, help="Most requests that wait in the pool; default: as stored.")
    ] = None,
    version: Annotated[int, typer.Option(min=0, help="Change only this version; 0 changes any.")] = 0,
    reason: ReasonOption = "",
    as_json: JsonFlag = False,
) -> None:
    """Show a pool's policies, or set a scope's capacity; the first one makes the pool."""
    if capacity is None:
        _print_policies(ask(lambda clients: _policies(clients, pool)), as_json=as_json)
        return
    if not scope:
        raise typer.BadParameter("name the scope whose capacity changes", param_hint="SCOPE")

    async def work(clients: Clients) -> lease_pb2.SetPolicyResponse:
        # A request can't leave the lifetime as it is stored: it is read, and kept if nobody changes it meanwhile.
        stored = None if max_lifetime_ms is not None else await _policy(clients, pool, scope)
        request = lease_pb2.SetPolicyRequest(
            pool=pool,
            scope=scope,
            capacity=capacity,
            max_lifetime_ms=stored.max_lifetime_ms if stored else max_lifetime_ms or 0,
            expected_version=version or (stored.version if stored else 0),
            actor=actor(),
            reason=reason,
            max_waiting=max_waiting,
        )
        return await clients.lease.SetPolicy(request)

    print_fields(plain(ask(work).policy), as_json=as_json)


@app.command("pause")
def pause(pool: PoolArgument, reason: ReasonOption = "", as_json: JsonFlag = False) -> None:
    """Stop new grants of a pool; held slots live on."""

    async def work(clients: Clients) -> Sequence[lease_pb2.Policy]:
        request = lease_pb2.PausePoolRequest(pool=pool, actor=actor(), reason=reason)
        return (await clients.lease.PausePool(request)).policies

    _print_policies(ask(work), as_json=as_json)


@app.command("resume")
def resume(pool: PoolArgument, reason: ReasonOption = "", as_json: JsonFlag = False) -> None:
    """Allow new grants of a pool again."""

    async def work(clients: Clients) -> Sequence[lease_pb2.Policy]:
        request = lease_pb2.ResumePoolRequest(pool=pool, actor=actor(), reason=reason)
        return (await clients.lease.ResumePool(request)).policies

    _print_policies(ask(work), as_json=as_json)


@app.command("drain")
def drain(
    pool: PoolArgument,
    wait: Annotated[int, typer.Option(min=0, max=600, help="Seconds to wait until nothing is held.")] = 60,
    reason: ReasonOption = "",
    as_json: JsonFlag = False,
) -> None:
    """Pause a pool and wait until nothing is held; `slots resume` opens it again."""

    async def work(clients: Clients) -> lease_pb2.DrainPoolResponse:
        request = lease_pb2.DrainPoolRequest(pool=pool, actor=actor(), reason=reason, wait_ms=wait * 1000)
        return await clients.lease.DrainPool(request, timeout=wait + 5)

    answer = ask(work)
    print_fields(plain(answer), as_json=as_json)
    if answer.held:
        raise CommandError(f"{answer.held} leases of {pool} are still held; the pool stays paused")


@app.command("release")
def release(
    pool: PoolArgument,
    token: Annotated[str, typer.Argument(help="The holder's token, from `slots list POOL`.")],
    reason: Annotated[str, typer.Option(help="Why; written to the audit.")],
    as_json: JsonFlag = False,
) -> None:
    """Take a slot away from its holder, whose later writes are refused; or send a waiter away."""

    async def work(clients: Clients) -> lease_pb2.ForceReleaseResponse:
        request = lease_pb2.ForceReleaseRequest(pool=pool, token=token, actor=actor(), reason=reason)
        return await clients.lease.ForceRelease(request)

    answer = ask(work)
    print_fields(plain(answer), as_json=as_json)
    if not answer.freed:
        raise CommandError(f"nobody holds {token} in {pool} any more: nothing was released")


def _list_waiters(pool: str, limit: int, *, as_json: bool) -> None:
    if not pool:
        raise typer.BadParameter("name the pool whose waiters to list", param_hint="POOL")

    async def work(clients: Clients) -> lease_pb2.ListWaitersResponse:
        return await clients.lease.ListWaiters(lease_pb2.ListWaitersRequest(pool=pool, page_size=limit))

    rows = [plain(waiter) for waiter in ask(work).waiters]
    print_rows(rows, _WAITER_COLUMNS, as_json=as_json, empty=f"Nobody waits in {pool}.")


async def _policies(clients: Clients, pool: str) -> Sequence[lease_pb2.Policy]:
    return (await clients.lease.GetPolicy(lease_pb2.GetPolicyRequest(pool=pool))).policies


async def _policy(clients: Clients, pool: str, scope: str) -> lease_pb2.Policy | None:
    return next((row for row in await _policies(clients, pool) if row.scope == scope), None)


def _print_policies(policies: Sequence[lease_pb2.Policy], *, as_json: bool) -> None:
    print_rows([plain(row) for row in policies], _POLICY_COLUMNS, as_json=as_json, empty="No policies.")
