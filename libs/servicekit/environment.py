"""How settings are read from environment variables.

A service's own names (``LEASE_SERVICE_GRPC__PORT``) win over the shared ones (``SLUICEGATE_POSTGRES_DSN``). Every
name may carry ``_FILE``: then the value is the content of that file, without the last line break. An empty variable
counts as not set. A name that starts with the service's prefix but belongs to no setting is an error, so that a
typing mistake can't pass unseen.
"""

import json
import os
import types
import typing
from collections.abc import Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

DELIMITER = "__"
FILE_SUFFIX = "_FILE"

SettingPath = tuple[str, ...]
"""The names of nested fields that lead to one setting."""

SHARED_NAMES: Mapping[str, SettingPath] = {
    "SLUICEGATE_POSTGRES_DSN": ("postgres", "dsn"),
    "SLUICEGATE_REDIS_URL": ("redis", "url"),
    "SLUICEGATE_NSQD": ("nsq", "nsqd_tcp"),
    "SLUICEGATE_NSQD_HTTP": ("nsq", "nsqd_http"),
    "SLUICEGATE_SPAN_STORE": ("telemetry", "span_store_path"),
    "SLUICEGATE_OTLP_ENDPOINT": ("telemetry", "otlp_endpoint"),
    "SLUICEGATE_LOG_LEVEL": ("log", "level"),
    "SLUICEGATE_LOG_JSON": ("log", "as_json"),
    "SLUICEGATE_AUTH_MODE": ("auth", "mode"),
    "SLUICEGATE_AUTH_TOKEN": ("auth", "token"),
    "SLUICEGATE_LEASE_SERVICE": ("peers", "lease_service"),
    "SLUICEGATE_POLLER": ("peers", "poller"),
    "SLUICEGATE_INGEST_SERVICE": ("peers", "ingest_service"),
    "SLUICEGATE_COLLECTION_WRITER": ("peers", "collection_writer"),
    "SLUICEGATE_TASK_API": ("peers", "task_api"),
}
"""Shared variable name -> the setting that it gives a default to."""

environment: ContextVar[Mapping[str, str] | None] = ContextVar("servicekit_environment", default=None)
"""The variables to read instead of the process's own; set by ``ServiceSettings.from_environment``."""


class VariableError(ValueError):
    """A variable that can't be used; the message names it and says what to do."""


class EnvironmentSource(PydanticBaseSettingsSource):
    """Collects one service's variables, then the shared ones, into the nested values of its settings."""

    def __init__(self, settings_class: type[BaseSettings], prefix: str) -> None:
        super().__init__(settings_class)
        self._prefix = prefix

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """Satisfy the base class; values are collected as a whole in ``__call__``."""
        del field
        return None, field_name, False

    def __call__(self) -> dict[str, Any]:
        """Return the nested values; raises :class:`VariableError` for names and files that can't be used."""
        variables = environment.get()
        if variables is None:
            variables = os.environ
        variables = {name: value for name, value in variables.items() if value}
        values: dict[str, Any] = {}
        for name, path in SHARED_NAMES.items():
            self._take(values, variables, name, path)
        for path, name in self._own_names(variables).items():
            _put(values, path, self._convert(path, _read(variables, name)))
        return values

    def _take(
        self, values: dict[str, Any], variables: Mapping[str, str], name: str, path: SettingPath
    ) -> None:
        if _field_at(self.settings_cls, path) is None:
            return
        _refuse_both(variables, name)
        for candidate in (name, name + FILE_SUFFIX):
            if candidate in variables:
                _put(values, path, self._convert(path, _read(variables, candidate)))

    def _own_names(self, variables: Mapping[str, str]) -> dict[SettingPath, str]:
        found: dict[SettingPath, str] = {}
        for name in sorted(variables):
            if not name.startswith(self._prefix):
                continue
            path = self._path_of(name)
            if path is None:
                raise VariableError(f"{name}: there is no such setting; correct the name or remove it")
            if path in found:
                raise VariableError(f"{name}: {found[path]} is set too; set only one of them")
            found[path] = name
        return found

    def _path_of(self, name: str) -> SettingPath | None:
        path = tuple(name[len(self._prefix) :].lower().split(DELIMITER))
        if _field_at(self.settings_cls, path) is not None:
            return path
        if not name.endswith(FILE_SUFFIX):
            return None
        path = (*path[:-1], path[-1].removesuffix(FILE_SUFFIX.lower()))
        return path if _field_at(self.settings_cls, path) is not None else None

    def _convert(self, path: SettingPath, value: str) -> Any:
        field = _field_at(self.settings_cls, path)
        if field is None or not _holds_several(field.annotation):
            return value
        try:
            return json.loads(value)
        except json.JSONDecodeError:
            return [part.strip() for part in value.split(",") if part.strip()]


def variable_names(settings_class: type[BaseModel], prefix: str, path: SettingPath) -> str:
    """Return the names of the variables that a person may set for one setting, own name first."""
    known = path
    while len(known) > 1 and _field_at(settings_class, known) is None:
        known = known[:-1]
    own = prefix + DELIMITER.join(known).upper()
    shared = [name for name, target in SHARED_NAMES.items() if target == known]
    return " or ".join([own, *shared])


def _field_at(model: type[BaseModel], path: SettingPath) -> FieldInfo | None:
    field = None
    current: type[BaseModel] | None = model
    for part in path:
        field = current.model_fields.get(part) if current is not None else None
        if field is None:
            return None
        current = _model_in(field.annotation)
    return None if current is not None else field


def _model_in(annotation: Any) -> type[BaseModel] | None:
    for candidate in (annotation, *typing.get_args(annotation)):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None


def _holds_several(annotation: Any) -> bool:
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        return any(_holds_several(part) for part in typing.get_args(annotation))
    return origin in (list, tuple, set, frozenset, dict) or annotation in (list, tuple, set, frozenset, dict)


def _refuse_both(variables: Mapping[str, str], name: str) -> None:
    if name in variables and name + FILE_SUFFIX in variables:
        raise VariableError(f"{name}: {name}{FILE_SUFFIX} is set too; set only one of them")


def _read(variables: Mapping[str, str], name: str) -> str:
    value = variables[name]
    if not name.endswith(FILE_SUFFIX):
        return value
    try:
        return Path(value).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        problem = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise VariableError(f"{name}: can't read the file {value}: {problem}") from error


def _put(values: dict[str, Any], path: SettingPath, value: Any) -> None:
    for part in path[:-1]:
        values = values.setdefault(part, {})
    values[path[-1]] = value
