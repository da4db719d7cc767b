"""
What is wrong with a write into a table. It is found while rows are staged, so nothing of it is visible.

    TableError
    ├── UnknownTable         no such table; create it in the transaction
    ├── TableExists          it was to be created
    ├── OtherCatalog         it lies in a catalog that our decision does not reach
    ├── FormatRefused        a table format that this way of writing can't keep
    ├── ModeRefused          a save mode that can't be part of a transaction
    ├── ColumnsDiffer        columns are missing, or more than the table has
    ├── TypeDiffers          a column is of another type
    ├── NullRefused          NULL in a required column
    ├── PartitionLost        the column that a table is partitioned by is not among the rows
    ├── OutsideOverwrite     rows that an overwrite of some partitions does not replace
    ├── BranchMissed         a session wrote to a table itself, past its branch
    ├── TableTaken           another undecided transaction overwrites the same
    └── LakeMissing          what this takes is not installed, or not set up

    InDoubt
    └── WarehouseAway        the files of a table can't be reached now (retryable)

If one of these is caught and dropped, the transaction goes on without that write.
"""

from txsaga.errors import InDoubt
from txsaga.errors.root import TxSagaError


class TableError(TxSagaError):
    """A write does not fit its table; nothing of it is visible."""


class UnknownTable(TableError):
    """There is no such table."""

    def __init__(self, table: str) -> None:
        super().__init__(f"there is no table {table!r}; create it with tx.table({table!r}).create(columns)")
        self.table = table


class TableExists(TableError):
    """The table that was to be created is there."""


class OtherCatalog(TableError):
    """The table lies in a catalog that our decision does not reach."""


class FormatRefused(TableError):
    """The table has a format that this way of writing can't keep."""


class ModeRefused(TableError):
    """A save mode that can't be part of a transaction."""


class ColumnsDiffer(TableError):
    """Columns are missing, or more than the table has."""


class TypeDiffers(TableError):
    """A column is of another type."""


class NullRefused(TableError):
    """NULL in a required column."""


class PartitionLost(TableError):
    """The column that a table is partitioned by is not among the rows."""


class OutsideOverwrite(TableError):
    """Rows lie outside of the partitions that an overwrite replaces."""


class BranchMissed(TableError):
    """A session wrote to a table itself, past the branch that it was to write to."""


class TableTaken(TableError):
    """Another undecided transaction overwrites the same part of a table."""

    retryable = True


class LakeMissing(TableError):
    """What this takes is not installed, or not set up."""

    INSTALL = "pip install 'txsaga[lake]'"


class WarehouseAway(InDoubt):
    """The files of a table can't be reached now."""

    retryable = True
