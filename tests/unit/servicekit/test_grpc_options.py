"""gRPC ignores an option whose name it does not know, without a word; a wrong one costs idle connections their life."""

from pathlib import Path

import pytest
from grpc._cython import cygrpc

from servicekit import grpc_client, grpc_server

OPTIONS = dict([*grpc_client._OPTIONS, *grpc_server._OPTIONS])
SERVER, CLIENT = dict(grpc_server._OPTIONS), dict(grpc_client._OPTIONS)


@pytest.fixture(scope="module")
def library() -> bytes:
    """The compiled core of gRPC, which holds the names of all options it reads."""
    return Path(cygrpc.__file__).read_bytes()


@pytest.mark.parametrize("name", sorted(OPTIONS))
def test_grpc_knows_every_option(name: str, library: bytes) -> None:
    assert f"{name}\0".encode() in library


def test_a_server_permits_the_pings_of_our_own_clients() -> None:
    """Else it would end every connection on which a call waits for minutes without data: too_many_pings."""
    assert SERVER["grpc.http2.min_ping_interval_without_data_ms"] < CLIENT["grpc.keepalive_time_ms"]
    assert SERVER["grpc.keepalive_permit_without_calls"] == CLIENT["grpc.keepalive_permit_without_calls"] == 1
