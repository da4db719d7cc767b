"""
The routes of the REST specification, under `/v1` and under `/v1/{prefix}`.

Names in a path are decoded here and not by the server: the levels of a namespace are joined by a unit separator, and
any of them may hold an encoded slash.
"""

from __future__ import annotations

import base64
import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, cast
from urllib.parse import quote, unquote_plus

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.responses import JSONResponse, Response

from txsaga.catalog.access import Client
from txsaga.catalog.credentials import EXPIRES, SCHEMES, FileAccess
from txsaga.catalog.files import MetadataFile
from txsaga.catalog.open_catalog import OpenCatalog
from txsaga.catalog.prefixes import CutTables, unsupported
from txsaga.catalog.refusals import CatalogRefusal, bad
from txsaga.catalog.repeats import CommitScope, Keyed
from txsaga.catalog.requests import (
    Change,
    ChangedTables,
    Identifier,
    NewNamespace,
    NewTable,
    NewView,
    PropertyChanges,
    Registration,
    Renaming,
    place_of,
    places_in,
)
from txsaga.catalog.table_gates import sets_gate
from txsaga.catalog.tables import TableChange
from txsaga.lake.table import TableName

logger = logging.getLogger("txsaga")
SEPARATOR = "\x1f"
TOKEN, KEY = "x-txsaga-transaction", "idempotency-key"
LARGEST_PAGE = 1_000
VENDED = "vended-credentials"
REFRESH = "client.refresh-credentials-endpoint"
"""The setting by which Java's client gets the next credentials."""
JOINS = (
    *("create_table", "register_table", "commit_table", "commit_tables", "drop_table", "rename_table"),
    "report_metrics",
)
"""What is staged with the token of a transaction, or has no effect."""
router = APIRouter()


def _catalog(request: Request) -> OpenCatalog:
    catalog: OpenCatalog = request.app.state.opened()
    if TOKEN in request.headers and request.method not in ("GET", "HEAD") and request.scope["route"].name not in JOINS:
        raise bad("this can't be part of a transaction; send it without X-Txsaga-Transaction, before or after")
    if (prefix := request.path_params.get("prefix")) is None:
        return catalog
    served = ("report_metrics", "commit_table", "commit_tables")
    if request.method not in ("GET", "HEAD") and request.scope["route"].name not in served:
        raise unsupported(f"this can't be changed in {prefix}")
    return cast(OpenCatalog, catalog.at(unquote_plus(prefix)))  # it has what these routes ask for


Catalog = Annotated[OpenCatalog, Depends(_catalog)]
PageToken = Annotated[str | None, Query(alias="pageToken")]
PageSize = Annotated[int | None, Query(alias="pageSize", ge=1)]


def _require_places(catalog: OpenCatalog, client: Client, name: TableName, places: Sequence[str]) -> None:
    if not places or not client.is_limited:
        return
    spelled = [place_of(each) for each in places]
    client.require_own_files(root := catalog.tables.root(catalog.name, name.namespace), *spelled)
    for each in (place for place in spelled if not place.endswith((".avro", ".json"))):
        if not client.reaches("write", name, root, each) or catalog.store.holds_others(each, name):
            line = f"{each} may hold files of another table or view; choose {root}/{name.table}"
            raise CatalogRefusal(403, "ForbiddenException", line)


def _require_places_of_namespace(client: Client, properties: Mapping[str, str]) -> None:
    if "location" in properties and client.is_limited:
        raise CatalogRefusal(
            403, "ForbiddenException", f"client {client.name!r} may not choose a folder for a namespace"
        )


def joined(levels: Sequence[str]) -> str:
    """Return a namespace as the rows of the catalog name it."""
    if not levels or not all(map(_is_storable, levels)) or any("." in level or SEPARATOR in level for level in levels):
        raise bad(f"namespace {list(levels)} can't be stored: give levels that are not empty and have no dot")
    return ".".join(levels)


def _name(catalog: OpenCatalog, namespace: str, table: str) -> TableName:
    if not _is_storable(table):
        raise bad("give a name of 1 to 255 characters")
    return TableName(catalog.name, namespace, table)


def _is_storable(name: str) -> bool:
    return 0 < len(name) <= 255 and name.isprintable()


def _named(catalog: OpenCatalog, identifier: Identifier) -> TableName:
    return _name(catalog, joined(identifier.namespace), identifier.name)


async def client_of(request: Request) -> Client:
    """Return who sends a request: it was let in as this client."""
    client: Client = request.state.client
    return client


Asking = Annotated[Client, Depends(client_of)]


async def _scope(request: Request, client: Asking) -> CommitScope:
    key = request.headers.get(KEY)  # each client has its own
    return CommitScope(
        request.headers.get(TOKEN), None if key is None else f"{client.name}/{key}", client.name, client.is_limited
    )


InScope = Annotated[CommitScope, Depends(_scope)]


class NamespaceFor:
    """The namespace of a path, for a client that has a right on it."""

    def __init__(self, right: str) -> None:
        self._right = right

    async def __call__(self, client: Asking, namespace: str) -> str:
        """Return it."""
        found = joined(unquote_plus(namespace).split(SEPARATOR))
        client.require_namespace(self._right, found)
        return found


class TableFor:
    """The table or view of a path, for a client that has a right on it."""

    def __init__(self, right: str) -> None:
        self._right = right

    async def __call__(self, client: Asking, catalog: Catalog, namespace: str, table: str) -> TableName:
        """Return it."""
        name = _name(catalog, joined(unquote_plus(namespace).split(SEPARATOR)), unquote_plus(table))
        client.require(self._right, name)
        return name


SeenNamespace = Annotated[str, Depends(NamespaceFor("read"))]
OwnNamespace = Annotated[str, Depends(NamespaceFor("create"))]
ReadTable = Annotated[TableName, Depends(TableFor("read"))]
WrittenTable = Annotated[TableName, Depends(TableFor("write"))]
OwnTable = Annotated[TableName, Depends(TableFor("create"))]


class Page:
    """Which page of a list a client wants; without a token or a size it is the whole list."""

    def __init__(self, token: PageToken = None, size: PageSize = None) -> None:
        self.most = None if token is None and size is None else min(size or LARGEST_PAGE, LARGEST_PAGE)
        try:
            self.after = base64.b64decode((token or "").encode(), b"-_", validate=True).decode()
        except ValueError:
            raise bad(f"pageToken {token!r} is not from this catalog") from None

    def for_client(self, client: Client) -> Page:
        """Return it, or the whole list for a client with limits: where its page ends could tell a name."""
        if client.is_limited:
            self.most, self.after = None, ""
        return self

    def document(self, key: str, found: Sequence[object], next: str | None) -> dict[str, object]:
        """Return an answer with the token of the next page."""
        token = None if next is None else base64.urlsafe_b64encode(next.encode()).decode()
        return {key: found} if self.most is None else {key: found, "next-page-token": token}


AtPage = Annotated[Page, Depends()]


class Vending:
    """Hands out credentials for the files of tables, as far as the rights of a client go; in a cut only to read."""

    def __init__(
        self,
        request: Request,
        catalog: Catalog,
        client: Asking,
        delegation: Annotated[str, Header(alias="x-iceberg-access-delegation")] = "",
    ) -> None:
        self._catalog, self._client = catalog, client
        self._prefix = request.path_params.get("prefix", "")
        self._is_asked = VENDED in [each.strip() for each in delegation.split(",")]

    def credentials(self, name: TableName, raw: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return what the specification calls storage credentials: one, since Java's client refreshes only one."""
        if self._catalog.credentials is None:
            return []
        writes = self._client.may("write", str(name)) and not isinstance(self._catalog.tables, CutTables)
        root = self._catalog.tables.root(name.catalog, name.namespace)
        places = [each for each in places_in(raw.get("properties"), raw["location"]) if each.startswith(SCHEMES)]
        right = "write" if writes else "read"
        reached = tuple(each for each in places if self._client.reaches(right, name, root, each))
        access = FileAccess(self._client.name, reached, writes)
        config = self._catalog.credentials.config(access) if reached else {}
        return [{"prefix": reached[0] if len(reached) == 1 else "s3", "config": config}] if config else []

    def answered(self, name: TableName, raw: Mapping[str, Any]) -> dict[str, Any]:
        """Return what is added to an answer with a table: older clients read the configuration only."""
        found = self.credentials(name, raw) if self._is_asked else []
        if not found:
            return {"config": {}}
        config = found[0]["config"]
        if EXPIRES in config:
            levels = quote(SEPARATOR.join(name.namespace.split(".")), safe="")
            path = f"namespaces/{levels}/tables/{quote(name.table, safe='')}/credentials"
            config = {**config, REFRESH: "/".join(filter(None, ("v1", self._prefix, path)))}
        return {"config": config, "storage-credentials": [{**found[0], "config": config}]}


Vends = Annotated[Vending, Depends()]


@router.get("/namespaces")
def list_namespaces(catalog: Catalog, client: Asking, page: AtPage, parent: str | None = None) -> dict[str, object]:
    """List the namespaces of a parent."""
    levels = parent.split(SEPARATOR) if parent else []
    page = page.for_client(client)
    found = catalog.store.namespaces(catalog.name, joined(levels) if levels else "", page.after, page.most)
    seen = [[*levels, name] for name in found.names if client.sees(".".join([*levels, name]))]
    return page.document("namespaces", seen, found.next)


@router.post("/namespaces")
def create_namespace(catalog: Catalog, client: Asking, new: NewNamespace, scope: InScope) -> dict[str, object]:
    """Create a namespace."""
    namespace = joined(new.namespace)
    client.require_namespace("create", namespace)
    _require_places_of_namespace(client, new.properties)
    catalog.acts.do(
        f"create namespace {namespace}",
        lambda store: store.create_namespace(catalog.name, namespace, new.properties),
        Keyed(scope, "create namespace", namespace, new.properties),
    )
    return {"namespace": new.namespace, "properties": new.properties}


@router.get("/namespaces/{namespace}")
def load_namespace(catalog: Catalog, namespace: SeenNamespace) -> dict[str, object]:
    """Return a namespace with its properties."""
    return {"namespace": namespace.split("."), "properties": catalog.store.properties(catalog.name, namespace)}


@router.head("/namespaces/{namespace}", status_code=204)
def has_namespace(catalog: Catalog, namespace: SeenNamespace) -> None:
    """Tell whether a namespace exists."""
    catalog.store.require_namespace(catalog.name, namespace)


@router.delete("/namespaces/{namespace}", status_code=204)
def drop_namespace(catalog: Catalog, namespace: OwnNamespace, scope: InScope) -> None:
    """Drop a namespace that holds nothing."""
    catalog.acts.do(
        f"drop namespace {namespace}",
        lambda store: store.drop_namespace(catalog.name, namespace),
        Keyed(scope, "drop namespace", namespace),
    )


@router.post("/namespaces/{namespace}/properties")
def change_properties(
    catalog: Catalog, client: Asking, namespace: OwnNamespace, changes: PropertyChanges, scope: InScope
) -> dict[str, object]:
    """Set and remove properties of a namespace."""
    if both := sorted(set(changes.removals) & set(changes.updates)):
        raise CatalogRefusal(
            422, "UnprocessableEntityException", f"properties are both set and removed: {', '.join(both)}"
        )
    _require_places_of_namespace(client, changes.updates)
    missed: list[str] = []
    catalog.acts.do(
        f"change namespace {namespace}",
        lambda store: missed.extend(
            store.change_properties(catalog.name, namespace, changes.removals, changes.updates)
        ),
        Keyed(scope, "change namespace", namespace, changes.model_dump()),
    )
    gone = [key for key in changes.removals if key not in missed]
    return {"updated": list(changes.updates), "removed": gone, "missing": missed}


@router.get("/namespaces/{namespace}/tables")
def list_tables(catalog: Catalog, client: Asking, namespace: SeenNamespace, page: AtPage) -> dict[str, object]:
    """List the tables of a namespace."""
    return _listed(catalog, client, namespace, "TABLE", page)


@router.post("/namespaces/{namespace}/tables")
def create_table(
    catalog: Catalog, client: Asking, namespace: SeenNamespace, new: NewTable, scope: InScope, vending: Vends
) -> Response:
    """Create a table, or only draft it."""
    name = _name(catalog, namespace, new.name)
    client.require("create", name)
    _require_places(catalog, client, name, places_in(new.properties, new.location))
    if new.stage_create:
        raw = catalog.tables.draft(name, new)
        return JSONResponse({"metadata": raw, **vending.answered(name, raw)})
    created = catalog.tables.create(name, new, scope)
    return _loaded(created, vended=vending.answered(name, created.raw))


@router.post("/namespaces/{namespace}/register")
def register_table(
    catalog: Catalog, client: Asking, namespace: SeenNamespace, given: Registration, scope: InScope
) -> Response:
    """Make a table of metadata that exists."""
    name = _name(catalog, namespace, given.name)
    client.require("create", name)
    _require_places(catalog, client, name, [given.metadata_location])
    if client.is_limited:
        raw = catalog.tables.files.read(given.metadata_location).raw
        _require_places(catalog, client, name, places_in(raw.get("properties"), raw.get("location")))
    return _loaded(catalog.tables.register(name, given.metadata_location, scope, overwrite=given.overwrite))


@router.get("/namespaces/{namespace}/tables/{table}")
def load_table(
    catalog: Catalog,
    table: ReadTable,
    scope: InScope,
    vending: Vends,
    snapshots: str = "all",
    if_none_match: Annotated[str | None, Header()] = None,
) -> Response:
    """Return a table; with `snapshots=refs` only the snapshots that a branch or tag names."""
    if snapshots not in ("all", "refs"):
        raise bad(f"snapshots is {snapshots!r}; it is all or refs")
    file = catalog.tables.load(table, scope)
    vended = vending.answered(table, file.raw)
    return _loaded(file, refs=snapshots == "refs", known=if_none_match, vended=vended)


@router.head("/namespaces/{namespace}/tables/{table}", status_code=204)
def has_table(catalog: Catalog, table: ReadTable, scope: InScope) -> None:
    """Tell whether a table exists."""
    if scope.token is None:
        catalog.store.pointer(table, "Table")
    else:
        catalog.tables.load(table, scope)


@router.post("/namespaces/{namespace}/tables/{table}")
def commit_table(catalog: Catalog, client: Asking, table: WrittenTable, change: Change, scope: InScope) -> Response:
    """Commit to a table."""
    if change.identifier is not None and _named(catalog, change.identifier) != table:
        raise bad(f"the body is for another table than {table}")
    asked = TableChange(table, change)
    _require_change(catalog, client, asked)
    catalog.tables.commit([asked], scope)
    return _loaded(catalog.tables.load(table, scope))


@router.delete("/namespaces/{namespace}/tables/{table}", status_code=204)
def drop_table(
    catalog: Catalog,
    client: Asking,
    table: OwnTable,
    scope: InScope,
    purge: Annotated[bool, Query(alias="purgeRequested")] = False,
) -> None:
    """Drop a table, and with `purgeRequested` its files: its manifests may name those of other tables."""
    if purge and client.is_limited:
        raise CatalogRefusal(403, "ForbiddenException", f"client {client.name!r} may not have files deleted")
    catalog.tables.drop(table, scope, purge=purge)


@router.get("/namespaces/{namespace}/tables/{table}/credentials")
def credentials(catalog: Catalog, table: ReadTable, scope: InScope, vending: Vends) -> dict[str, object]:
    """Return credentials for the files of a table."""
    return {"storage-credentials": vending.credentials(table, catalog.tables.load(table, scope).raw)}


@router.post("/namespaces/{namespace}/tables/{table}/metrics", status_code=204)
def report_metrics(catalog: Catalog, table: ReadTable, report: dict[str, Any]) -> None:
    """Take a report of a scan or a commit into the log."""
    if not isinstance(report.get("report-type"), str):
        raise bad("the report has no report-type")
    logger.debug("table %s: %s", table, report)


@router.post("/tables/rename", status_code=204)
def rename_table(catalog: Catalog, client: Asking, renaming: Renaming, scope: InScope) -> None:
    """Rename a table."""
    catalog.tables.rename(*_renamed(catalog, client, renaming), scope)


@router.post("/transactions/commit", status_code=204)
def commit_tables(catalog: Catalog, client: Asking, changed: ChangedTables, scope: InScope) -> None:
    """Commit to several tables: to all, or to none."""
    changes = []
    for each in changed.table_changes:
        if each.identifier is None:
            raise bad("a change names no table")
        changes.append(TableChange(_named(catalog, each.identifier), each))
    if not changes:
        raise bad("the commit changes no table")
    for asked in changes:
        _require_change(catalog, client, asked)
    catalog.tables.commit(changes, scope)


def _require_change(catalog: OpenCatalog, client: Client, asked: TableChange) -> None:
    client.require("create" if asked.creates or sets_gate(asked.change.updates) else "write", asked.name)
    _require_places(catalog, client, asked.name, asked.change.places)


@router.get("/namespaces/{namespace}/views")
def list_views(catalog: Catalog, client: Asking, namespace: SeenNamespace, page: AtPage) -> dict[str, object]:
    """List the views of a namespace."""
    return _listed(catalog, client, namespace, "VIEW", page)


@router.post("/namespaces/{namespace}/views")
def create_view(catalog: Catalog, client: Asking, namespace: SeenNamespace, new: NewView, scope: InScope) -> Response:
    """Create a view."""
    name = _name(catalog, namespace, new.name)
    client.require("create", name)
    _require_places(catalog, client, name, places_in(new.properties, new.location))
    return _loaded(catalog.views.create(name, new, scope))


@router.post("/namespaces/{namespace}/register-view")
def register_view(
    catalog: Catalog, client: Asking, namespace: SeenNamespace, given: Registration, scope: InScope
) -> Response:
    """Make a view of metadata that exists."""
    name = _name(catalog, namespace, given.name)
    client.require("create", name)
    _require_places(catalog, client, name, [given.metadata_location])
    return _loaded(catalog.views.register(name, given.metadata_location, scope))


@router.get("/namespaces/{namespace}/views/{table}")
def load_view(catalog: Catalog, table: ReadTable, if_none_match: Annotated[str | None, Header()] = None) -> Response:
    """Return a view."""
    return _loaded(catalog.views.load(table), known=if_none_match)


@router.head("/namespaces/{namespace}/views/{table}", status_code=204)
def has_view(catalog: Catalog, table: ReadTable) -> None:
    """Tell whether a view exists."""
    catalog.store.pointer(table, "View")


@router.post("/namespaces/{namespace}/views/{table}")
def commit_view(catalog: Catalog, client: Asking, table: WrittenTable, change: Change, scope: InScope) -> Response:
    """Replace a view, or change its properties."""
    _require_places(catalog, client, table, change.places)
    return _loaded(catalog.views.commit(table, change, scope))


@router.delete("/namespaces/{namespace}/views/{table}", status_code=204)
def drop_view(catalog: Catalog, table: OwnTable, scope: InScope) -> None:
    """Drop a view."""
    catalog.acts.do(f"drop view {table}", lambda store: store.drop_view(table), Keyed(scope, "drop view", [*table]))


@router.post("/views/rename", status_code=204)
def rename_view(catalog: Catalog, client: Asking, renaming: Renaming, scope: InScope) -> None:
    """Rename a view."""
    old, new = _renamed(catalog, client, renaming)
    catalog.acts.do(
        f"rename view {old} to {new}",
        lambda store: store.rename_view(old, new),
        Keyed(scope, "rename view", [*old], [*new]),
    )


def _renamed(catalog: OpenCatalog, client: Client, renaming: Renaming) -> tuple[TableName, TableName]:
    source, destination = _named(catalog, renaming.source), _named(catalog, renaming.destination)
    client.require("create", source, destination)
    return source, destination


def _listed(catalog: OpenCatalog, client: Client, namespace: str, kind: str, page: Page) -> dict[str, object]:
    page = page.for_client(client)
    found = catalog.store.listed(catalog.name, namespace, kind, page.after, page.most)
    seen = [name for name in found.names if client.may("read", f"{namespace}.{name}")]
    levels = namespace.split(".")
    return page.document("identifiers", [{"namespace": levels, "name": name} for name in seen], found.next)


def _loaded(
    file: MetadataFile, *, refs: bool = False, known: str | None = None, vended: Mapping[str, Any] | None = None
) -> Response:
    """Return a table or view, or nothing if the client has it; with credentials always, since they end."""
    text = (file.only_refs() if refs else file).text
    added = json.dumps(vended or {"config": {}})[1:].encode()
    body = b'{"metadata-location":' + json.dumps(file.location).encode() + b',"metadata":' + text + b"," + added
    if vended is not None and vended["config"]:
        return Response(body, media_type="application/json", headers={"cache-control": "no-store"})
    tag = f'"{hashlib.sha256(file.location.encode() + text).hexdigest()[:32]}"'
    if {tag, "*"} & {each.strip().removeprefix("W/") for each in (known or "").split(",")}:
        return Response(status_code=304, headers={"etag": tag})
    return Response(body, media_type="application/json", headers={"etag": tag})
