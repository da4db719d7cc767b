"""
The embedded PostgreSQL: found or started on demand, safe under root and under kill -9.

`EmbeddedServer` is all that other parts need.
"""
