"""The key that signs tickets: from the settings, or one in PostgreSQL that all replicas share."""

import hashlib
import secrets

from pydantic import SecretStr

from lease_service.domain.tickets import KEY_BYTES, Tickets
from servicekit.postgres import Postgres, load_sql

_PACKAGE = "lease_service"


class TicketKey:
    """Gives the tickets their key before the first one is signed. A Component.

    Args:
        tickets: get the key.
        database: where replicas share it.
        secret: used instead when it is set; any text.
    """

    name = "ticket_key"

    def __init__(self, tickets: Tickets, database: Postgres, secret: SecretStr | None) -> None:
        self._tickets = tickets
        self._database = database
        self._secret = secret

    async def start(self) -> None:
        """Read the key, or make the one that everybody will read; raises what the driver raises."""
        if self._secret is not None:
            text = self._secret.get_secret_value().encode()
            self._tickets.key = hashlib.blake2b(text, digest_size=KEY_BYTES).digest()
            return
        pool = self._database.pool
        key = await pool.fetchval(load_sql(_PACKAGE, "ticket_key"))
        if key is None:
            await pool.execute(load_sql(_PACKAGE, "put_ticket_key"), secrets.token_bytes(KEY_BYTES))
            key = await pool.fetchval(load_sql(_PACKAGE, "ticket_key"))
        self._tickets.key = key

    async def drain(self) -> None:
        """Do nothing."""

    async def stop(self) -> None:
        """Do nothing."""
