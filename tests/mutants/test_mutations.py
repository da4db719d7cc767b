"""The table of mutations fits the code. `make mutants` runs them."""

import pytest

from tests.mutants.mutation import ROOT, RULES, Mutation, mutations

ALL = mutations()


@pytest.mark.parametrize("mutation", ALL, ids=[f"{each.rule}: {each.without}" for each in ALL])
def test_a_mutation_changes_one_place_of_the_package(mutation: Mutation) -> None:
    text = (ROOT / mutation.file).read_text()
    assert mutation.file.startswith("txsaga/")
    assert mutation.changed(text) != text


@pytest.mark.parametrize("mutation", ALL, ids=[f"{each.rule}: {each.without}" for each in ALL])
def test_the_tests_of_a_mutation_are_there(mutation: Mutation) -> None:
    assert mutation.tests
    for test in mutation.tests:
        file, _, name = test.partition("::")
        text = (ROOT / file).read_text()
        assert "::" in name or f"def {name}" in text  # a suite's tests are in another file


def test_every_rule_has_a_mutation() -> None:
    assert {each.rule for each in ALL} == set(RULES)


@pytest.mark.parametrize("text", ["nothing", "x x"])
def test_a_text_that_is_not_there_exactly_once_is_an_error(text: str) -> None:
    with pytest.raises(LookupError, match="the text before is"):
        Mutation("R1", "a guard", "txsaga/a.py", "x", "y", []).changed(text)
