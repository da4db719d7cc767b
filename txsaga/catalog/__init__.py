"""The open catalog: Iceberg's REST protocol on the home database."""
