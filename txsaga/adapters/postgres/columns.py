"""What the tables of a namespace have in common: their collection, and words of their columns."""

from sqlalchemy import DateTime, MetaData, text

NOW = text("clock_timestamp()")
FALSE = text("false")
ZERO = text("0")
EMPTY, NONE = text("'{}'"), text("'[]'")
Moment = DateTime(timezone=True)

metadata = MetaData()
