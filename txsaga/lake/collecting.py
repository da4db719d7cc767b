"""
Deleting what no decision will ever publish: staged files of rolled back transactions and of losing attempts.

What was voted down can be kept for a while, for inspection.

The name of a folder or a branch contains its transaction. Nothing is deleted while that is undecided, belongs to
another store, or is no longer known. Of a committed one only the files that its winning attempts did not write are
deleted, and every branch: its recorded content is published, and an engine that still writes to it creates it again. If
this never runs, files that no reader uses stay; if it deleted one too many, a table would lose rows.
"""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from pyarrow.fs import FileInfo, FileSelector, FileType
from pyiceberg.io.pyarrow import PyArrowFileIO

from txsaga.core.decision import Decision
from txsaga.errors import PointerMoved, UnknownTable, UnknownTransaction, WarehouseAway
from txsaga.flows.ballot import Polled
from txsaga.lake.branches import TableBranches
from txsaga.lake.storage import Storage, local
from txsaga.lake.table import TABLE_EFFECT, Swap, TableName, TableWrite, transaction_of

if TYPE_CHECKING:
    from txsaga.messages.ledger_store import Ledger
    from txsaga.store.store import Store


def below(storage: Storage, location: str) -> list[str]:
    """Return the locations of all objects below a location, at any depth."""
    return [name for name, info in _listed(storage, location, deep=True) if info.type == FileType.File]


def folders(storage: Storage, location: str) -> list[str]:
    """Return the folders directly below a location."""
    return [name for name, info in _listed(storage, location, deep=False) if info.type == FileType.Directory]


def _listed(storage: Storage, location: str, *, deep: bool) -> Iterator[tuple[str, FileInfo]]:
    io = storage.io(location)
    if not isinstance(io, PyArrowFileIO):
        raise WarehouseAway(
            f"{location} can't be listed by {type(io).__name__}; let PyIceberg use PyArrowFileIO for it"
        )
    scheme, netloc, path = io.parse_location(location, io.properties)
    root = location.removesuffix(path.removeprefix(netloc))
    try:
        selector = FileSelector(path.rstrip("/"), recursive=deep, allow_not_found=True)
        found = io.fs_by_scheme(scheme, netloc).get_file_info(selector)
    except OSError as error:
        raise WarehouseAway(f"{location} can't be listed: {error}; retry when its storage is back") from error
    for each in sorted(found, key=lambda info: str(info.path)):
        yield f"{root}{each.path.removeprefix(netloc)}", each


logger = logging.getLogger("txsaga")
MANIFEST = re.compile(r"_txsaga-(?P<transaction>[0-9a-f]{32}-[0-9a-f]+-[0-9a-f]+)-\d+-\d+-\d+\.avro")


class Leftover(NamedTuple):
    """A staged folder or file, and the transaction that staged it."""

    transaction: str
    place: str


class Collector:
    """Deletes leftovers below the folders of tables."""

    def __init__(self, store: Store, storage: Storage, refused_before: datetime) -> None:
        self._ledgers, self._identity, self._storage = store.ledgers, store.registry.identity, storage
        self._refused_before = refused_before

    def collect(self, places: Iterator[str], *, dry_run: bool = False) -> list[str]:
        """Delete what no decision will publish; return the locations."""
        gone = []
        for place in dict.fromkeys(places):
            for left in staged(self._storage, place):
                if self._is_over(left.transaction, partial(_is_unpublished, left.place)):
                    gone.append(left.place)
                    if not dry_run:
                        _remove(self._storage, left.place)
        return gone

    def drop_branches(self, branches: TableBranches, names: Iterable[TableName], *, dry_run: bool = False) -> list[str]:
        """Drop branches of which nothing more will be published; return them."""
        found = []
        for name in names:
            try:
                gone = branches.drop(name, self._is_nobodys_branch, None if dry_run else self._move)
            except UnknownTable:
                continue  # the table was just dropped
            except PointerMoved as moved:
                logger.info("branches of table %s are kept until the next `txsaga collect`: %s", name, moved)
                continue
            found += [f"branch {each} of {name}" for each in gone]
        return found

    def _move(self, swap: Swap) -> None:
        with self._ledgers.open() as ledger:
            ledger.swap([swap])

    def _is_nobodys_branch(self, branch: str) -> bool:
        transaction = transaction_of(branch)
        return transaction is not None and self._is_over(transaction, lambda ledger, txid: True)

    def _is_over(self, transaction: str, committed: Callable[[Ledger, int], bool]) -> bool:
        """Return whether nothing more comes of a transaction; for a committed one `committed` decides."""
        try:
            txid = self._identity.own(transaction)
        except UnknownTransaction:
            return False
        with self._ledgers.open() as ledger:
            standing = ledger.standing(txid)
            if standing is Decision.COMMIT:
                return committed(ledger, txid)
            return standing is Decision.ROLLBACK and not self._is_kept(ledger.ballots(txid))

    def _is_kept(self, polls: Sequence[Polled]) -> bool:
        """Return whether a recent vote against it keeps it for inspection."""
        noes = (cast.at for poll in polls for cast in poll.casts if not cast.yes)
        return any(at is not None and at >= self._refused_before for at in noes)


def staged(storage: Storage, place: str) -> Iterator[Leftover]:
    """Yield the leftovers of one table."""
    root = local(place)
    if root is not None:
        folders, files = root.glob("data/_txsaga/*/*"), root.glob("metadata/_txsaga-*.avro")
        yield from _named(sorted(map(str, folders)), sorted(map(str, files)))
    else:
        data = f"{place}/data/_txsaga/"
        stems = {"/".join(each.removeprefix(data).split("/")[:2]) for each in below(storage, data)}
        yield from _named([data + stem for stem in sorted(stems)], below(storage, f"{place}/metadata"))


def _is_unpublished(place: str, ledger: Ledger, txid: int) -> bool:
    """Return whether a committed transaction left a place unpublished; False if it recorded no write."""
    writes = [TableWrite.read(each.payload) for each in ledger.effects(txid) if each.kind == TABLE_EFFECT]
    kept = {_name(write.folder) for write in writes if write.folder}
    kept |= {_name(str(write.manifest["manifest_path"])) for write in writes if write.manifest}
    return bool(writes) and _name(place) not in kept


def _named(folders: Iterable[str], files: Iterable[str]) -> Iterator[Leftover]:
    for folder in folders:
        yield Leftover(folder.split("/")[-2], folder)
    for file in files:
        if found := MANIFEST.fullmatch(file.rpartition("/")[2]):
            yield Leftover(found["transaction"], file)


def _name(location: str) -> str:
    """Return the last part of a location, unique in its transaction: a location has several spellings."""
    return location.rstrip("/").rpartition("/")[2]


def _remove(storage: Storage, place: str) -> None:
    path = local(place)
    if path is None:
        for each in below(storage, place) or [place]:
            storage.remove(each)
    elif path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
        with suppress(OSError):
            path.parent.rmdir()  # the transaction's folder, once it is empty
    else:
        path.unlink(missing_ok=True)
