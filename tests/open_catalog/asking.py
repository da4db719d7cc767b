"""What clients send to a catalog, as plain JSON."""

from __future__ import annotations

from typing import Any

import httpx

from txsaga.catalog.routes import KEY, TOKEN

SCHEMA: dict[str, Any] = {"type": "struct", "fields": [{"id": 1, "name": "id", "type": "long", "required": False}]}

VIEW: dict[str, Any] = {
    "name": "seen",
    "schema": {"type": "struct", "fields": [], "schema-id": 0},
    "view-version": {
        "version-id": 1,
        "timestamp-ms": 1,
        "schema-id": 0,
        "summary": {},
        "default-namespace": ["bank"],
        "representations": [{"type": "sql", "sql": "SELECT 1", "dialect": "spark"}],
    },
    "properties": {},
}


def created(rest: httpx.Client, *names: str, namespace: str = "bank") -> None:
    """Create tables in a namespace."""
    rest.post("/v1/namespaces", json={"namespace": [namespace], "properties": {}})
    for name in names:
        answer = rest.post(f"/v1/namespaces/{namespace}/tables", json={"name": name, "schema": SCHEMA})
        assert answer.status_code == 200, answer.text


def change(name: str, *requirements: dict[str, Any], namespace: str = "bank", **properties: str) -> dict[str, Any]:
    """Return the change that sets properties of a table."""
    return {
        "identifier": {"namespace": [namespace], "name": name},
        "requirements": list(requirements),
        "updates": [{"action": "set-properties", "updates": properties}],
    }


def committed(rest: httpx.Client, *changes: dict[str, Any], token: str = "", key: str = "") -> httpx.Response:
    """Commit to several tables."""
    headers = {name: value for name, value in ((TOKEN, token), (KEY, key)) if value}
    return rest.post("/v1/transactions/commit", json={"table-changes": list(changes)}, headers=headers)


def loaded(rest: httpx.Client, name: str, *, token: str = "", namespace: str = "bank") -> Any:
    """Return the metadata of a table."""
    answer = rest.get(f"/v1/namespaces/{namespace}/tables/{name}", headers={TOKEN: token} if token else {})
    assert answer.status_code == 200, answer.text
    return answer.json()["metadata"]


def property_of(rest: httpx.Client, name: str, key: str = "n", *, token: str = "") -> str | None:
    """Return a property of a table."""
    found = loaded(rest, name, token=token)["properties"].get(key)
    return None if found is None else str(found)


def refused(answer: httpx.Response) -> tuple[int, str]:
    """Return the status and the type of a refusal."""
    return answer.status_code, answer.json()["error"]["type"]
