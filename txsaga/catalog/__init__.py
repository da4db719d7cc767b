"""The open catalog: Iceberg's REST protocol on the tables of the home database."""
