"""
Settings, read once from a mapping and checked on construction; nothing reads the environment at import.

Each setting is declared once, here, with its name and its reader. An invalid value is refused in one line that names
the setting and says what to write, whichever part of the program needs it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Generic, TypeVar
from urllib.parse import quote_plus, urlsplit

from txsaga.core.arguments import read_number
from txsaga.core.redacting import redacted
from txsaga.errors import ConfigError

T = TypeVar("T")
STORAGES = ("s3", "s3a", "s3n", "oss", "gs", "file", "hdfs", "viewfs", "abfs", "abfss", "wasb", "wasbs", "hf")
"""The URI schemes of storage that can hold tables."""
RESOURCE = "TXSAGA_RESOURCE_"


@dataclass(frozen=True, slots=True)
class Variable(Generic[T]):
    """An environment variable; a name that ends with _ covers all variables that begin with it."""

    name: str
    read: Callable[[str, str], T]
    """Parse the text of the named variable, or raise `ConfigError`."""

    def of(self, env: Mapping[str, str]) -> T | None:
        """Return its value; None if it is unset or empty."""
        text = env.get(self.name)
        return self.read(self.name, text) if text else None

    def each(self, env: Mapping[str, str]) -> dict[str, T]:
        """Return the values of all variables with this prefix, by the rest of the name in lower case."""
        found = {name: text for name, text in env.items() if name.startswith(self.name)}
        return {name.removeprefix(self.name).lower(): self.read(name, text) for name, text in found.items()}


def _refused(name: str, text: str, allowed: str) -> ConfigError:
    return ConfigError(f"{name} is {redacted(text)!r}; write {allowed}")


def _text(name: str, text: str) -> str:
    return text


def _matching(pattern: str, allowed: str) -> Callable[[str, str], str]:
    def read(name: str, text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise _refused(name, text, allowed)
        return text

    return read


_place = _matching(r"[^\W\d][\w.]*:[^\W\d]\w*", "module:callable")
_module = _matching(r"[\w.-]+", "modules, with commas between them")


def _several(read: Callable[[str, str], str]) -> Callable[[str, str], tuple[str, ...]]:
    def each(name: str, text: str) -> tuple[str, ...]:
        return tuple(read(name, one) for one in filter(None, map(str.strip, text.split(","))))

    return each


def _flag(name: str, text: str) -> bool:
    if text not in ("0", "1", "true", "false"):
        raise _refused(name, text, "1 or 0")
    return text in ("1", "true")


def _folder(name: str, text: str) -> Path:
    """Read a folder that every process must find, whatever its working directory."""
    path = Path(text)
    if not path.is_absolute():
        raise _refused(name, text, "an absolute path: processes with other working directories would use another one")
    return path


def _file(name: str, text: str) -> Path:
    path = Path(text)
    if path.is_dir() or not path.parent.is_dir():
        raise _refused(name, text, "the path of a file in an existing folder")
    return path


def _warehouse(name: str, text: str) -> str:
    """Read where tables are stored; the location is saved with each table, so it must contain no credentials."""
    scheme, found, rest = text.partition("://")
    place = rest.partition("/")[0]
    if found and ("?" in rest or ":" in place.rpartition("@")[0]):
        raise _refused(name, text, "a location without keys: those belong into the configuration of PyIceberg")
    if found and scheme not in STORAGES:
        raise _refused(name, text, f"a folder, or a URI of {', '.join(STORAGES)}")
    return text


def _airflow(name: str, text: str) -> str:
    try:
        url = urlsplit(text)
        wrong = url.scheme not in ("http", "https") or not url.hostname or url.port == 0
        wrong = wrong or "@" in f"{url.path}{url.query}{url.fragment}"  # an unescaped @ in a password
    except ValueError:
        wrong = True
    if wrong:
        raise ConfigError(f"{name} is not an address of Airflow; write http://user:password@host:port")
    return text


def _kill_point(name: str, text: str) -> str:
    from txsaga.core import facts

    fact, _, occurrence = text.partition(":")
    if fact not in {each.__name__ for each in facts.ALL} or not read_number(occurrence):
        raise _refused(name, text, "a fact and its count, like Decided:1")
    return text


URL = Variable("TXSAGA_URL", _text)
RESOURCES = Variable(RESOURCE, _text)
BROKERS = Variable("TXSAGA_BROKER_", _text)
PARTICIPANTS = Variable("TXSAGA_PARTICIPANT_", _place)
OBSERVERS = Variable("TXSAGA_OBSERVERS", _several(_place))
SAGAS = Variable("TXSAGA_SAGAS", _several(_module))
AUTO_CREATE = Variable("TXSAGA_AUTO_CREATE", _flag)
WAREHOUSE = Variable("TXSAGA_WAREHOUSE", _warehouse)
CATALOG = Variable("TXSAGA_CATALOG", _matching(r"[A-Za-z_][A-Za-z0-9_-]{0,63}", "up to 64 letters, digits, _ and -"))
SUITES = Variable("TXSAGA_SUITES", _text)
SPARK_MASTER = Variable(
    "TXSAGA_SPARK_MASTER", _matching(r"local\S*|yarn\S*|\w+://\S+", "local[N], spark://host:port or sc://host:port")
)
SPARK_JARS = Variable("TXSAGA_SPARK_JARS", _text)
AIRFLOW_URL = Variable("TXSAGA_AIRFLOW_URL", _airflow)
AIRFLOW_NAME = Variable(
    "TXSAGA_AIRFLOW_NAME", _matching(r"[A-Za-z0-9._-]{1,64}", "up to 64 letters, digits, dots, hyphens and underscores")
)
AIRFLOW_HOME = Variable("TXSAGA_AIRFLOW_HOME", _folder)
PG_HOME = Variable("TXSAGA_PG_HOME", _folder)
PG_BIN = Variable("TXSAGA_PG_BIN", _text)
PG_USER = Variable("TXSAGA_PG_USER", _text)
KILL = Variable("TXSAGA_KILL", _kill_point)
FACTS = Variable("TXSAGA_FACTS", _file)
READ_ELSEWHERE: tuple[Variable[Any], ...] = (SPARK_MASTER, AIRFLOW_HOME, PG_HOME, KILL, FACTS)
"""Used elsewhere, but checked with the others, so that a mistake shows up at the start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How to reach the home database and the resources."""

    url: str | None = field(default=None, repr=False)
    resources: Mapping[str, str] = field(default_factory=dict, repr=False)
    brokers: Mapping[str, str] = field(default_factory=dict, repr=False)
    participants: Mapping[str, str] = field(default_factory=dict)
    observers: tuple[str, ...] = ()
    sagas: tuple[str, ...] = ()
    auto_create: bool = False
    warehouse: str | None = None
    catalog: str = "txsaga"
    airflow: str | None = field(default=None, repr=False)
    airflow_name: str | None = None
    embedded: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> Settings:
        """Read the settings from an environment, and check those used elsewhere."""
        for each in READ_ELSEWHERE:
            each.of(env)
        return cls(
            url=URL.of(env),
            resources=RESOURCES.each(env),
            brokers=BROKERS.each(env),
            participants=PARTICIPANTS.each(env),
            observers=OBSERVERS.of(env) or (),
            sagas=SAGAS.of(env) or (),
            auto_create=AUTO_CREATE.of(env) or False,
            warehouse=WAREHOUSE.of(env),
            catalog=CATALOG.of(env) or "txsaga",
            airflow=AIRFLOW_URL.of(env),
            airflow_name=AIRFLOW_NAME.of(env),
            embedded={name: value for name, value in env.items() if name.startswith("TXSAGA_PG_")},
        )


def load(name: str, what: str) -> Any:  # the caller knows the type
    """Load a function that settings name as module:function; an error names what could not be loaded."""
    module, _, attribute = name.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as reason:
        raise ConfigError(f"{what} {name!r} can't be loaded: {reason}") from reason
    except (Exception, SystemExit) as raised:  # the user's module may raise anything
        told = f"{type(raised).__name__}: {raised}"
        raise ConfigError(f"{what} {name!r} can't be loaded, its module raised {told}") from raised


NAMESPACE = "txsaga"
"""The namespace of a URL that names none."""


def with_namespace(url: str, namespace: str | None) -> str:
    """Put a namespace into a URL, in the place of the one that is there."""
    if namespace is None:
        return url
    if not namespace:
        raise ConfigError("the namespace is empty; name one, or leave it out")
    address, _, query = (url, "", "") if "@" in url.rpartition("?")[2] else url.partition("?")
    kept = [pair for pair in query.split("&") if pair and not pair.startswith("namespace=")]
    return f"{address}?{'&'.join([*kept, f'namespace={quote_plus(namespace)}'])}"
