"""
What clients send. Schemas, partition specs and updates are kept as they are sent: a client may be newer than this.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import groupby
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

Json = dict[str, Any]
MOST = 500
"""Tables that one commit changes, and updates of one of them."""
PLACES = (
    "location",
    "write.metadata.path",
    "write.data.path",
    "write.object-storage.path",
    "write.folder-storage.path",
)
"""The properties that name places of files."""


class Request(BaseModel):
    """The body of a request; fields that it does not know are left out, and null is as good as no field."""

    model_config = ConfigDict(populate_by_name=True)

    @model_validator(mode="before")
    @classmethod
    def _given(cls, said: Any) -> Any:
        return {key: value for key, value in said.items() if value is not None} if isinstance(said, dict) else said


class Identifier(Request):
    """The name of a table or view."""

    namespace: list[str]
    name: str


class NewNamespace(Request):
    """A namespace to be created."""

    namespace: list[str]
    properties: dict[str, str] = {}


class PropertyChanges(Request):
    """Changes of the properties of a namespace."""

    removals: list[str] = []
    updates: dict[str, str] = {}


class NewTable(Request):
    """A table to be created, at once or with its first commit."""

    name: str
    location: str | None = None
    schema_: Json = Field(alias="schema")
    partition_spec: Json | None = Field(None, alias="partition-spec")
    write_order: Json | None = Field(None, alias="write-order")
    stage_create: bool = Field(False, alias="stage-create")
    properties: dict[str, str] | None = None


def place_of(said: str) -> str:
    """Return a place in the spelling that is used here: Hadoop writes `file:/` for `file:///`."""
    return re.sub("^file:/+", "file:///", said)


def places_in(properties: Mapping[str, str] | None, location: str | None = None) -> list[str]:
    """Return the places of files that properties of a table or view name, with its location."""
    named = [location, *((properties or {}).get(key) for key in PLACES)]
    return [each for each in named if each]


class Registration(Request):
    """A table whose metadata exists."""

    name: str
    metadata_location: str = Field(alias="metadata-location")
    overwrite: bool = False


class Renaming(Request):
    """A table or view, and its new name."""

    source: Identifier
    destination: Identifier


class Change(Request):
    """A commit to one table or view."""

    identifier: Identifier | None = None
    requirements: Annotated[list[Json], Field(max_length=MOST)] = []
    updates: Annotated[list[Json], Field(max_length=MOST)] = []

    @field_validator("updates", mode="before")
    @classmethod
    def _removed_at_once(cls, said: Any) -> Any:
        """Join removals of snapshots that follow each other: Java's client sends one for each."""
        joined: list[Any] = []
        for removes, run in groupby(said if isinstance(said, list) else (), _removes_snapshots):
            found = [*run]
            ids = (number for each in found for number in each["snapshot-ids"]) if removes else ()
            joined += [{**found[0], "snapshot-ids": [*ids]}] if removes else found
        return joined if isinstance(said, list) else said

    @field_validator("requirements", "updates")
    @classmethod
    def _in_small_letters(cls, said: list[Json]) -> list[Json]:
        """Spell kinds as the specification does: they may be written in any letters."""
        kinds = {"type", "action"}
        return [
            {key: value.lower() if key in kinds and isinstance(value, str) else value for key, value in each.items()}
            for each in said
        ]

    @property
    def places(self) -> list[str]:
        """The places of files that it sets."""
        found: list[str] = []
        for each in self.updates:
            for said in (each, *(value for value in each.values() if isinstance(value, dict))):
                found += [place for key in (*PLACES, "manifest-list") if isinstance(place := said.get(key), str)]
        return found


def _removes_snapshots(update: Any) -> bool:
    said = update if isinstance(update, dict) else {}
    return f"{said.get('action')}".lower() == "remove-snapshots" and isinstance(said.get("snapshot-ids"), list)


class ChangedTables(Request):
    """A commit to several tables."""

    table_changes: list[Change] = Field(alias="table-changes", max_length=MOST)


class NewView(Request):
    """A view to be created."""

    name: str
    location: str | None = None
    schema_: Json = Field(alias="schema")
    view_version: Json = Field(alias="view-version")
    properties: dict[str, str] | None = None
