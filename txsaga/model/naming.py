"""The names of tables, as users write them."""

from __future__ import annotations

from txsaga.errors import ConfigError
from txsaga.errors.lake import OtherCatalog
from txsaga.model.table import TableName


def read_name(catalog: str, said: str) -> TableName:
    """Read a name as [catalog.]namespace.table."""
    parts = said.split(".") if isinstance(said, str) else []
    if len(parts) not in (2, 3) or not all(part.isidentifier() for part in parts):
        raise ConfigError(f"{said!r} names no table; write namespace.table, in letters, digits and _")
    if len(parts) == 3 and parts[0] != catalog:
        raise OtherCatalog(
            f"table {said!r} lies in catalog {parts[0]!r}, and one decision reaches only the tables of {catalog!r}; "
            "publish to it behind the commit, or keep the table here"
        )
    return TableName(catalog, parts[-2], parts[-1])
