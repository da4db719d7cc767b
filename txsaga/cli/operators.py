"""What commands of an operator share: the transaction they name, the reason, and the account that runs them."""

from __future__ import annotations

import os
import pwd
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from txsaga.core.arguments import read_number
from txsaga.core.identity import LAST, HalfId
from txsaga.errors import UnknownTransaction

if TYPE_CHECKING:
    from txsaga.core.identity import StoreId

Id = Annotated[str, typer.Argument(metavar="ID", help="Id or number of a transaction, or id of a message.")]
OptionalId = Annotated[str | None, typer.Argument(metavar="[ID]", help="Id or number of a transaction.")]
Reason = Annotated[str, typer.Option(help="Why you do this; it is recorded with your name.")]


def number_of(text: str, store: StoreId) -> int:
    """Read the number of a transaction of this store."""
    number = read_number(text)
    if number is None:
        number = store.own(HalfId.decode(text).transaction if text.count("-") > 2 else text)
    if number > LAST:
        raise UnknownTransaction(f"transaction {text} is not in this store")
    return number


def os_user(name_of: Callable[[int], str] = lambda uid: pwd.getpwuid(uid).pw_name) -> str:
    """Return the account of this process as the system knows it, regardless of the environment."""
    uid = os.getuid()
    try:
        name = name_of(uid)
    except KeyError:
        name = f"uid {uid}"
    return f"{name}@{socket.gethostname()}"
