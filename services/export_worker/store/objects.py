"""The export store: a local folder or any object store that obstore knows."""

import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import LocalStore, ObjectStore, from_url

from export_worker.domain.export import Manifest
from servicekit.errors import Reason, ServiceError

_PART_BYTES = 5 * 1024 * 1024
_MANIFEST = "manifest.json"
_MOST_LISTINGS = 20


def open_store(location: str) -> ObjectStore:
    """Open ``s3://…``, ``gs://…``, ``az://…``, ``file:///…`` or a folder, which is made where it is missing.

    Raises:
        ServiceError: DEPENDENCY_AWAY when the folder can't be made or the address can't be read.
    """
    with _errors("open"):
        if "://" in location and not location.startswith("file://"):
            return from_url(location)
        folder = Path(location.removeprefix("file://")).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        return LocalStore(folder)


class _Writer:
    def __init__(self, writer: Any) -> None:
        self._writer = writer

    async def write(self, data: bytes) -> None:
        with _errors("write to"):
            await self._writer.write(data)


class ObjectExportStore:
    """Keeps ``exports/<id>/<attempt>.csv`` and, once published, ``exports/<id>/manifest.json``."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    async def check(self) -> None:
        """Do real work on the store; raises ServiceError DEPENDENCY_AWAY."""
        await self.read_manifest("health-check")

    async def read_manifest(self, export_id: str) -> Manifest | None:
        """Return what was published, or None."""
        with _errors("read from"):
            try:
                answer = await obstore.get_async(self._store, _manifest_key(export_id))
            except FileNotFoundError:
                return None
            return Manifest(**json.loads(bytes(await answer.bytes_async())))

    @asynccontextmanager
    async def stage(self, object_key: str) -> AsyncIterator[_Writer]:
        """Open a new object, written in parts of 5 MiB; an error inside the block leaves no object."""
        writer = obstore.open_writer_async(self._store, object_key, buffer_size=_PART_BYTES)
        with _errors("write to"):
            async with writer as opened:
                yield _Writer(opened)

    async def publish(self, manifest: Manifest) -> Manifest:
        """Create the manifest by conditional put; whoever comes second gets the first one's."""
        body = json.dumps(manifest.as_dict()).encode()
        with _errors("write to"):
            try:
                await obstore.put_async(self._store, _manifest_key(manifest.export_id), body, mode="create")
            except AlreadyExistsError:
                winner = await self.read_manifest(manifest.export_id)
                return winner or manifest
        return manifest

    async def discard_others(self, export_id: str, keep: str) -> None:
        """Delete what other attempts staged; one that is still being written fails its own publish.

        Other attempts may clean up at the same time: what is gone already is what was wanted.
        """
        kept = {keep, _manifest_key(export_id)}
        with _errors("clean up"):
            for path in await self._listed(export_id):
                if path not in kept:
                    with contextlib.suppress(FileNotFoundError):
                        await obstore.delete_async(self._store, path)

    async def _listed(self, export_id: str) -> list[str]:
        """List an export's objects; a folder's listing fails when one vanishes meanwhile, then it is read again."""
        for _ in range(_MOST_LISTINGS):
            with contextlib.suppress(FileNotFoundError):
                chunks = obstore.list(self._store, f"exports/{export_id}")
                return [item["path"] async for chunk in chunks for item in chunk]
        return []


def _manifest_key(export_id: str) -> str:
    return f"exports/{export_id}/{_MANIFEST}"


@contextmanager
def _errors(action: str) -> Iterator[None]:
    try:
        yield
    except (BaseError, OSError) as error:
        raise ServiceError(
            Reason.DEPENDENCY_AWAY, f"can't {action} the export store ({type(error).__name__})"
        ) from error
