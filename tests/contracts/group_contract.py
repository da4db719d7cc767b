"""What every store promises of consumer groups: a style for ever, and a policy that may change."""

# The name of a test is a sentence.

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import partial

import pytest

from tests.contracts.claiming import CROWD, crowded
from txsaga.consume.claim import ConsumerGroup, Policy, Style
from txsaga.errors import GroupKindMismatch, UnknownGroup
from txsaga.store.store import Store

OWN = Policy(
    ordered=True,
    max_attempts=3,
    backout="failed",
    dead_letters=False,
    first_retry=timedelta(milliseconds=250),
    longest_retry=timedelta(hours=2),
    expires=timedelta(days=3),
)


class GroupContract:
    """Registered groups, as the port `ConsumerGroups` promises them."""

    def test_a_group_is_registered_as_it_was_asked_for(self, store: Store) -> None:
        made = store.groups.open("billing", Style.WORK, OWN)
        assert made == ConsumerGroup(name="billing", style=Style.WORK, policy=OWN)
        assert store.groups.find("billing") == made

    def test_a_group_may_be_opened_again_and_keeps_its_policy(self, store: Store) -> None:
        made = store.groups.open("billing", Style.WORK, OWN)
        assert store.groups.open("billing", Style.WORK, Policy()) == made
        assert store.groups.all() == [made]

    @pytest.mark.parametrize(("first", "second"), [(Style.WORK, Style.STREAM), (Style.STREAM, Style.WORK)])
    def test_a_group_of_the_other_style_is_refused(self, store: Store, first: Style, second: Style) -> None:
        made = store.groups.open("billing", first, OWN)
        with pytest.raises(GroupKindMismatch, match="billing"):
            store.groups.open("billing", second, Policy())
        assert store.groups.find("billing") == made

    def test_a_policy_may_be_changed(self, store: Store) -> None:
        store.groups.open("billing", Style.WORK, OWN)
        store.groups.open("mail", Style.WORK, OWN)
        changes = {"max_attempts": None, "expires": None, "first_retry": timedelta(seconds=2)}
        endless = replace(OWN, max_attempts=None, expires=None, first_retry=timedelta(seconds=2))
        changed = store.groups.alter("billing", changes)
        assert changed == ConsumerGroup(name="billing", style=Style.WORK, policy=endless)
        assert store.groups.find("billing") == changed
        assert store.groups.open("billing", Style.WORK, OWN) == changed
        assert store.groups.open("mail", Style.WORK, Policy()).policy == OWN

    def test_of_changes_at_the_same_time_none_is_lost(self, store: Store) -> None:
        store.groups.open("billing", Style.WORK, Policy())
        wanted = {"max_attempts": 7, "dead_letters": False, "longest_retry": timedelta(hours=1), "expires": None}
        crowded(*[partial(store.groups.alter, "billing", {name: value}) for name, value in wanted.items()])
        found = store.groups.find("billing")
        assert found is not None
        assert found.policy == replace(Policy(), **wanted)  # type: ignore[arg-type]

    def test_a_group_that_nobody_registered_is_unknown(self, store: Store) -> None:
        with pytest.raises(UnknownGroup, match="billing"):
            store.groups.alter("billing", {"max_attempts": 1})
        assert store.groups.find("billing") is None
        assert store.groups.all() == []

    def test_groups_are_listed_by_name(self, store: Store) -> None:
        for name in ("mail", "billing", "stock"):
            store.groups.open(name, Style.STREAM, Policy())
        assert [group.name for group in store.groups.all()] == ["billing", "mail", "stock"]

    def test_of_rivals_all_get_the_one_that_was_first(self, store: Store) -> None:
        works = [partial(store.groups.open, "billing", Style.WORK, Policy(max_attempts=n)) for n in range(1, CROWD + 1)]
        found = crowded(*works)
        assert set(map(repr, found)) == {repr(store.groups.find("billing"))}
