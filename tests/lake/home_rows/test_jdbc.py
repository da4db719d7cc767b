"""Programs in Java reach the home database as its URL says, TLS included."""

import pytest
from sqlalchemy import make_url

from txsaga.lake.home_rows_store import jdbc_address


@pytest.mark.parametrize(
    ("said", "address"),
    [
        ("db/home", "db:5432/home?currentSchema=ours"),
        ("db:1/home?connect_timeout=3", "db:1/home?currentSchema=ours"),
        (
            "db:1/home?sslrootcert=/etc/our%20root.crt&sslmode=verify-full",
            "db:1/home?currentSchema=ours&sslmode=verify-full&sslrootcert=/etc/our+root.crt",
        ),
    ],
)
def test_what_a_url_says_of_tls_goes_along(said: str, address: str) -> None:
    url = make_url(f"postgresql+psycopg://me:secret@{said}")
    assert jdbc_address(url, {"currentSchema": "ours"}) == f"jdbc:postgresql://{address}"
