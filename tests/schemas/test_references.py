"""What schemas need of others, which somebody else has registered: in order, and never without end."""

from __future__ import annotations

import pytest

from ottla.schemas.avro import InvalidSchema
from ottla.schemas.references import Place, Referred, places_in, texts_of

LATEST = -1


def walked(schemas: dict[str, list[Place]], *wanted: Place, most: int = 1000) -> tuple[str, ...]:
    """Every subject has one version, whose text is its name. Each schema is asked for once under each name it has."""
    asked: list[Place] = []

    def find(place: Place) -> Referred:
        assert place not in asked
        asked.append(place)
        return Referred((place[0], 1), place[0], tuple(schemas[place[0]]))

    return texts_of(wanted, find, most=most)


def test_each_stands_behind_those_that_it_needs() -> None:
    diamond: dict[str, list[Place]] = {"a": [("b", 1), ("c", 1)], "b": [("d", 1)], "c": [("d", LATEST)], "d": []}
    assert walked(diamond, ("a", 1)) == ("d", "b", "c", "a")
    assert walked(diamond, ("c", 1), ("b", 1)) == ("d", "c", "b")
    assert walked(diamond) == ()


def test_a_chain_may_be_as_long_as_there_may_be_schemas_and_no_longer() -> None:
    chain: dict[str, list[Place]] = {f"s{at}": [(f"s{at + 1}", 1)] for at in range(1000)} | {"s1000": []}
    assert walked(chain, ("s1", 1)) == tuple(f"s{at}" for at in range(1000, 0, -1))
    with pytest.raises(InvalidSchema, match="refers to more than 1000 others"):
        walked(chain, ("s0", 1))
    wide: dict[str, list[Place]] = {name: [] for name in chain}
    assert len(walked(wide, *((name, 1) for name in list(wide)[:1000]))) == 1000
    with pytest.raises(InvalidSchema, match="refers to more than 1000 others"):
        walked(wide, *((name, 1) for name in wide))


def test_a_circle_is_walked_once() -> None:
    circle: dict[str, list[Place]] = {"a": [("b", LATEST)], "b": [("a", LATEST)]}
    assert sorted(walked(circle, ("a", 1))) == ["a", "b"]
    assert walked({"a": [("a", LATEST)]}, ("a", LATEST)) == ("a",)


def test_a_registry_describes_what_a_schema_refers_to() -> None:
    assert places_in({"references": [{"name": "n", "subject": "s", "version": 2}]}) == (("s", 2),)
    assert places_in({}) == places_in({"references": None}) == ()
