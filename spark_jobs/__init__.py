"""Programs for Spark: read, transform, write. Their transforms are functions of DataFrames, tested on a dozen rows."""
