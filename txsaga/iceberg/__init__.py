"""Iceberg's specification of metadata, as functions on plain JSON."""
