"""
What this package registers with Airflow. A mistake here breaks every Airflow command; a test checks the schema.
"""

from __future__ import annotations

from txsaga.provider.options import OPTIONS, SECTION

ABOUT = "Defaults for flows, sensors and assets of txsaga."
OPERATORS = [
    f"txsaga.provider.operators.{name}" for name in ("call", "flow", "maintenance", "messages", "spark", "sql", "votes")
]


def get_provider_info() -> dict[str, object]:
    """Return the provider's entries."""
    return {
        "package-name": "txsaga",
        "name": "TxSaga",
        "description": "All-or-nothing message flows: messages, tables and rows become visible by one decision.",
        "versions": ["0.1.0"],
        "integrations": [{"integration-name": "TxSaga", "external-doc-url": "https://example.com/txsaga"}],
        "operators": [{"integration-name": "TxSaga", "python-modules": OPERATORS}],
        "sensors": [{"integration-name": "TxSaga", "python-modules": ["txsaga.provider.sensors"]}],
        "triggers": [{"integration-name": "TxSaga", "python-modules": ["txsaga.provider.triggers"]}],
        "asset-uris": [{"schemes": ["txsaga"], "handler": "txsaga.provider.assets.sanitize_uri"}],
        "queues": ["txsaga.provider.assets.TxSagaQueues"],
        "notifications": ["txsaga.provider.operators.messages.MessageNotifier"],
        "extra-links": ["txsaga.provider.reference.TransactionLink"],
        "hooks": [{"integration-name": "TxSaga", "python-modules": ["txsaga.provider.connections"]}],
        "connection-types": [_connection_type()],
        "config": {SECTION: {"description": ABOUT, "options": {each.name: each.entry() for each in OPTIONS}}},
        "task-decorators": [{"name": "tx_step", "class-name": "txsaga.provider.operators.call.tx_step"}],
    }


def _connection_type() -> dict[str, object]:
    return {
        "connection-type": "txsaga",
        "hook-class-name": "txsaga.provider.connections.TxSagaHook",
        "hook-name": "TxSaga store",
        "ui-field-behaviour": {
            "relabeling": {"schema": "Database"},
            "placeholders": {"port": "5432", "schema": "txsaga"},
        },
        "conn-fields": {
            "namespace": {
                "label": "Namespace",
                "description": "The schema of the store, where its database has several.",
                "schema": {"type": ["string", "null"], "default": None},
            }
        },
    }
