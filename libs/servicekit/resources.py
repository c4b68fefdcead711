"""The statements and scripts that travel inside the packages."""

from functools import cache
from importlib.resources import files


@cache
def load_store_file(package: str, kind: str, name: str) -> str:
    """Return the text of ``<package>/store/<kind>/<name>.<kind>``; read once.

    Args:
        package: a service's package, or any package below it: the first part counts.
        kind: ``sql`` or ``lua``.
        name: the file's name without its ending; may lie in a folder (``usage/settle``).

    Raises:
        FileNotFoundError: there is no such file; the message names it.
    """
    root = package.split(".", maxsplit=1)[0]
    path = files(root).joinpath("store", kind, *f"{name}.{kind}".split("/"))
    if not path.is_file():
        raise FileNotFoundError(f"{root} has no store/{kind}/{name}.{kind}")
    return path.read_text(encoding="utf-8")
