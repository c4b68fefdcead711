"""Run the development broker until SIGTERM or SIGINT."""

import argparse
import asyncio
import signal
import sys

from devbroker.options import BrokerOptions
from devbroker.server import DevBroker

_WARNING = """\
************************************************************************
* DEVELOPMENT BROKER: NOT DURABLE. Every message lives in memory only
* and is lost when this process ends. Never use it in production.
************************************************************************"""


def main() -> int:
    """Serve and return the exit code: 0 after a clean stop, 1 if a port is taken."""
    arguments = _parse()
    try:
        return asyncio.run(_serve(arguments))
    except OSError as error:
        print(f"cannot start devbroker: {error}", file=sys.stderr)  # noqa: T201 - its console is its interface
        return 1


async def _serve(arguments: argparse.Namespace) -> int:
    host, tcp_port = _split(arguments.tcp_address)
    _, http_port = _split(arguments.http_address)
    options = BrokerOptions(msg_timeout=arguments.msg_timeout, max_msg_timeout=arguments.max_msg_timeout)
    server = DevBroker(host=host, tcp_port=tcp_port, http_port=http_port, options=options)
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    await server.start()
    print(_WARNING, file=sys.stderr, flush=True)  # noqa: T201
    print(f"devbroker: tcp {server.tcp_address} http {server.http_address}", flush=True)  # noqa: T201
    await stopped.wait()
    await server.stop()
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="devbroker", description=__doc__)
    parser.add_argument("--tcp-address", default="127.0.0.1:4150", help="host:port, port 0 = any free")
    parser.add_argument("--http-address", default="127.0.0.1:4151", help="host:port, port 0 = any free")
    parser.add_argument(
        "--msg-timeout", type=float, default=60.0, help="seconds until a held message returns"
    )
    parser.add_argument(
        "--max-msg-timeout", type=float, default=900.0, help="seconds that touching can reach"
    )
    return parser.parse_args()


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


if __name__ == "__main__":
    sys.exit(main())
