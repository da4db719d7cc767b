"""
Collecting what no decision will ever publish: staged files of transactions that rolled back, and of attempts that lost.

What a gate refused can be kept for a while, so that somebody may look at it.

A folder names its transaction, and so does a branch. Nothing is taken while that is undecided, belongs to another
store, or is not known any more; of a committed one only what its winning attempts did not write, and every branch: what
was recorded of it is published, and who still writes there makes it anew. If this never runs, files that nobody reads
stay; if it took one more, a table would lose rows.
"""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from typing import NamedTuple

from pyarrow.fs import FileInfo, FileSelector, FileType
from pyiceberg.io.pyarrow import PyArrowFileIO

from txsaga.core.decision import Decision
from txsaga.core.identity import StoreId
from txsaga.errors import PointerMoved, UnknownTable, UnknownTransaction, WarehouseAway
from txsaga.flows.ballot import Polled
from txsaga.lake.branch_names import transaction_of
from txsaga.lake.branches import TableBranches
from txsaga.lake.storage import Storage, local
from txsaga.lake.table import TABLE_EFFECT, Swap, TableName, TableWrite
from txsaga.messages.ports import Ledger, Ledgers


def below(storage: Storage, location: str) -> list[str]:
    """Return the locations of all objects below a place, at any depth."""
    return [name for name, info in _listed(storage, location, deep=True) if info.type == FileType.File]


def folders(storage: Storage, location: str) -> list[str]:
    """Return the places directly below a place."""
    return [name for name, info in _listed(storage, location, deep=False) if info.type == FileType.Directory]


def _listed(storage: Storage, location: str, *, deep: bool) -> Iterator[tuple[str, FileInfo]]:
    io = storage.io(location)
    if not isinstance(io, PyArrowFileIO):
        raise WarehouseAway(
            f"{location} can't be listed by {type(io).__name__}; let PyIceberg use PyArrowFileIO for it"
        )
    scheme, netloc, path = io.parse_location(location, io.properties)
    root = location.removesuffix(path.removeprefix(netloc))
    with _told(location):
        selector = FileSelector(path.rstrip("/"), recursive=deep, allow_not_found=True)
        found = io.fs_by_scheme(scheme, netloc).get_file_info(selector)
    for each in sorted(found, key=lambda info: str(info.path)):
        yield f"{root}{each.path.removeprefix(netloc)}", each


@contextmanager
def _told(location: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise WarehouseAway(f"{location} can't be listed: {error}; retry when its storage is back") from error


logger = logging.getLogger("txsaga")
MANIFEST = re.compile(r"_txsaga-(?P<transaction>[0-9a-f]{32}-[0-9a-f]+-[0-9a-f]+)-\d+-\d+-\d+\.avro")


class Leftover(NamedTuple):
    """Something that was staged, and by which transaction."""

    transaction: str
    place: str


class Collector:
    """Collects below the folders of tables."""

    def __init__(
        self, ledgers: Ledgers, identity: StoreId, storage: Storage, refused_before: datetime | None = None
    ) -> None:
        self._ledgers, self._identity, self._storage = ledgers, identity, storage
        self._refused_before = refused_before

    def collect(self, places: Iterator[str], *, dry_run: bool = False) -> list[str]:
        """Take away what is nobody's; return where it lay."""
        gone = []
        for place in dict.fromkeys(places):
            for left in staged(self._storage, place):
                if self._is_nobodys(left):
                    gone.append(left.place)
                    if not dry_run:
                        _remove(self._storage, left.place)
        return gone

    def drop_branches(self, branches: TableBranches, names: Iterable[TableName], *, dry_run: bool = False) -> list[str]:
        """Drop branches that nothing will be published of any more; return which."""
        found = []
        for name in names:
            try:
                gone = branches.drop(name, self._is_nobodys_branch, None if dry_run else self._move)
            except UnknownTable:
                continue  # it was dropped this moment
            except PointerMoved as moved:
                logger.info("branches of table %s stay until tables are collected again: %s", name, moved)
                continue
            found += [f"branch {each} of {name}" for each in gone]
        return found

    def _move(self, swap: Swap) -> None:
        with self._ledgers.open() as ledger:
            ledger.swap([swap])

    def _is_nobodys_branch(self, branch: str) -> bool:
        transaction = transaction_of(branch)
        return transaction is not None and self._is_over(transaction, lambda ledger, txid: True)

    def _is_nobodys(self, left: Leftover) -> bool:
        return self._is_over(left.transaction, partial(_is_unpublished, left.place))

    def _is_over(self, transaction: str, committed: Callable[[Ledger, int], bool]) -> bool:
        """Tell whether nothing comes of a transaction any more; of a committed one `committed` says."""
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
        """Tell whether somebody said no to it a short while ago."""
        noes = [cast.at for poll in polls for cast in poll.casts if not cast.yes]
        before = self._refused_before
        return before is not None and any(at is not None and at >= before for at in noes)


def staged(storage: Storage, place: str) -> Iterator[Leftover]:
    """Yield what was staged for one table."""
    root = local(place)
    if root is not None:
        folders, files = root.glob("data/_txsaga/*/*"), root.glob("metadata/_txsaga-*.avro")
        yield from _named(sorted(map(str, folders)), sorted(map(str, files)))
    else:
        data = f"{place}/data/_txsaga/"
        stems = {"/".join(each.removeprefix(data).split("/")[:2]) for each in below(storage, data)}
        yield from _named([data + stem for stem in sorted(stems)], below(storage, f"{place}/metadata"))


def _is_unpublished(place: str, ledger: Ledger, txid: int) -> bool:
    """Tell whether a committed transaction left something unpublished there; without any record nobody knows."""
    writes = [TableWrite.read(each.payload) for each in ledger.effects(txid) if each.kind == TABLE_EFFECT]
    kept = {_name(write.folder) for write in writes if write.folder}
    kept |= {_name(str(write.manifest["manifest_path"])) for write in writes if write.manifest}
    return bool(writes) and _name(place) not in kept


def _named(folders: Iterable[str], files: Iterable[str]) -> Iterator[Leftover]:
    for folder in folders:
        yield Leftover(folder.split("/")[-2], folder)
    for file in files:
        found = MANIFEST.fullmatch(file.rpartition("/")[2])
        if found:
            yield Leftover(found["transaction"], file)


def _name(location: str) -> str:
    """Return what nothing else of its transaction is called: the same place may be written in more than one way."""
    return location.rstrip("/").rpartition("/")[2]


def _remove(storage: Storage, place: str) -> None:
    path = local(place)
    if path is None:
        for each in below(storage, place) or [place]:
            storage.remove(each)
    elif path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
        with suppress(OSError):
            path.parent.rmdir()  # the transaction's, once it is empty
    else:
        path.unlink(missing_ok=True)
