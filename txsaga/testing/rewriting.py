"""Asks pytest to explain failing asserts of the contract suites; else they only say that they failed."""

import pytest

pytest.register_assert_rewrite(
    "txsaga.testing.samples",
    "txsaga.testing.half_contract",
    "txsaga.testing.end_contract",
    "txsaga.testing.ledger_contract",
    "txsaga.testing.decision_contract",
    "txsaga.testing.log_contract",
    "txsaga.testing.doubt_contract",
    "txsaga.testing.queue_contract",
    "txsaga.testing.intent_contract",
    "txsaga.testing.claiming",
    "txsaga.testing.claim_contract",
    "txsaga.testing.redelivery_contract",
    "txsaga.testing.order_contract",
    "txsaga.testing.burial_contract",
    "txsaga.testing.binding_contract",
    "txsaga.testing.group_contract",
    "txsaga.testing.registry_contract",
    "txsaga.testing.overview_contract",
    "txsaga.testing.participant_contract",
)
