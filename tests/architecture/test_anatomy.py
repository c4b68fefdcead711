"""Every service has the same anatomy; a name that is not in the list is a decision, so it fails here first."""

import ast
import gc
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SERVICES = sorted(path.parent for path in (ROOT / "services").glob("*/__init__.py"))
FILES = {
    "__init__.py",
    "__main__.py",
    "app.py",
    "clients.py",
    "consumer.py",
    "domain.py",
    "messages.py",  # wire forms that several edges of one service share
    "publisher.py",
    "py.typed",
    "servicer.py",
    "session.py",  # the edge of long bidirectional streams
    "settings.py",
    "worker.py",  # the worker's edge: claimed task in, result out
}
FOLDERS = {"domain", "loops", "routes", "servicer", "static", "store"}
STORES = {"__init__.py", "keys.py", "objects.py", "postgres.py", "redis.py"}
ONLY_HERE = {
    "messages.py": {"lease_service"},
    "session.py": {"lease_service", "task_api"},
    "routes": {"task_api"},
    "static": {"task_api"},
    "worker.py": {"export_worker"},
}
LONGEST_FILE = 400
LONGEST_MAIN = 40
SQL = re.compile(
    r"\b(SELECT\s.+\sFROM|INSERT\s+INTO|UPDATE\s+\w+\s+SET|DELETE\s+FROM)\b", re.IGNORECASE | re.DOTALL
)
REDIS_KEY = re.compile(r"^(slots|poll|ingest|card|flow_evaluated|task):")
HEADER = {".sql": "--", ".lua": "--"}


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.name != "__pycache__"}


def python_files(*folders: str) -> Iterator[Path]:
    for folder in folders:
        yield from (path for path in (ROOT / folder).rglob("*.py") if "node_modules" not in path.parts)


def parsed(path: Path) -> ast.Module:
    """Parse a module without the collector: Python 3.11's parser fails when finalizers run amid its work."""
    gc.disable()
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    finally:
        gc.enable()


def texts(path: Path) -> Iterator[str]:
    """Yield the string constants of a module that are not docstrings."""
    tree = parsed(path)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value


def test_there_are_six_services() -> None:
    assert [path.name for path in SERVICES] == [
        "collection_writer",
        "export_worker",
        "ingest_service",
        "lease_service",
        "poller",
        "task_api",
    ]


@pytest.mark.parametrize("service", SERVICES, ids=lambda path: path.name)
def test_a_service_has_known_files_only(service: Path) -> None:
    assert names(service) - FILES - FOLDERS == set()
    for name, owners in ONLY_HERE.items():
        assert service.name in owners or not (service / name).exists(), f"{name} is not for {service.name}"
    both = {"servicer.py", "servicer"} <= names(service)
    assert not both, "the gRPC edge is one file, or a folder once it is too long for one"
    required = {"__init__.py", "__main__.py", "settings.py", "app.py", "py.typed"}
    assert required - names(service) == set()


@pytest.mark.parametrize("service", SERVICES, ids=lambda path: path.name)
def test_a_store_holds_engines_statements_and_scripts(service: Path) -> None:
    store = service / "store"
    if store.exists():
        kept = names(store) - {"sql", "lua"}
        assert {
            name for name in kept if name not in STORES and not name.startswith(("postgres_", "redis_"))
        } == set()
        for kind in ("sql", "lua"):
            if (store / kind).exists():
                assert {path.suffix for path in (store / kind).rglob("*") if path.is_file()} <= {f".{kind}"}


@pytest.mark.parametrize("service", SERVICES, ids=lambda path: path.name)
def test_entry_points_are_short_and_documented(service: Path) -> None:
    main = (service / "__main__.py").read_text(encoding="utf-8")
    assert len(main.splitlines()) < LONGEST_MAIN
    body = parsed(service / "__init__.py").body
    assert len(body) == 1, "__init__.py holds a docstring and nothing else"
    assert isinstance(body[0], ast.Expr)


def test_no_file_is_too_long() -> None:
    long = {
        str(path.relative_to(ROOT)): count
        for path in python_files("services", "libs", "cli", "gateways")
        if (count := len(path.read_text(encoding="utf-8").splitlines())) > LONGEST_FILE
    }
    assert long == {}


def test_every_statement_and_script_says_what_it_does() -> None:
    for path in [*ROOT.glob("services/*/store/**/*.sql"), *ROOT.glob("services/*/store/**/*.lua")]:
        assert path.read_text(encoding="utf-8").startswith(HEADER[path.suffix]), path


def test_no_statement_stands_in_python() -> None:
    found = [
        (str(path.relative_to(ROOT)), text[:60])
        for path in python_files("services", "cli", "libs/sluicegate_client")
        if "store" not in path.parts
        for text in texts(path)
        if SQL.search(text)
    ]
    assert found == []


def test_redis_keys_are_spelled_in_keys_alone() -> None:
    found = [
        (str(path.relative_to(ROOT)), text)
        for path in python_files("services", "libs/sluicegate_client")
        if path.name != "keys.py"
        for text in texts(path)
        if REDIS_KEY.match(text)
    ]
    assert found == []
