"""What the tables of a namespace have in common: their collection, and words of their columns."""

from sqlalchemy import DateTime, MetaData, SmallInteger, text
from sqlalchemy.dialects.postgresql import DOMAIN

NOW = text("clock_timestamp()")
FALSE = text("false")
ZERO = text("0")
EMPTY, NONE = text("'{}'"), text("'[]'")
Moment = DateTime(timezone=True)

metadata = MetaData()

# A domain, since a constraint of a table is read anew by every statement that writes a row.
Decided = DOMAIN("tx_decision", SmallInteger(), check="VALUE IN (1, 2)", metadata=metadata)
