from dataclasses import replace

import pytest

from service.routing import Route, UnknownLanguagePair, by_target, find_model, routes
from tests.service.fakes import FAKE_MODEL


def model(pair, name=None, **fields):
    source, target = pair.split(">")
    return replace(FAKE_MODEL, name=name or pair, source_language=source, target_language=target, **fields)


def ways(*pairs):
    return {
        f"{route.source_language}>{route.target_language}": (route.via, [step.name for step in route.steps])
        for route in routes([model(pair) for pair in pairs])
    }


def test_two_models_make_a_way_through_the_language_between():
    assert ways("de>en", "en>fr") == {"de>fr": ("en", ["de>en", "en>fr"])}


def test_a_pair_that_a_model_translates_needs_no_way():
    assert ways("de>en", "en>fr", "de>fr") == {}


def test_no_way_leads_back_or_stands_still():
    assert ways("de>en", "en>de") == {}
    assert ways("en-GB>en", "en>fr") == {}
    assert ways("de>en", "en-GB>de-AT") == {}


def test_english_is_preferred_and_else_the_models_order():
    assert ways("de>es", "es>fr", "de>en", "en>fr")["de>fr"] == ("en", ["de>en", "en>fr"])
    assert ways("de>it", "it>fr", "de>es", "es>fr")["de>fr"] == ("it", ["de>it", "it>fr"])


def test_variants_of_the_language_between_fit_together():
    assert ways("de>en", "en-GB>fr") == {"de>fr": ("en", ["de>en", "en-GB>fr"])}


def test_every_target_of_a_model_is_a_target_of_ways_too():
    many = model("en>de", name="many", target_languages=("de", "fr", "pt-br"))
    found = {route.target_language: route for route in routes([model("fi>en"), many])}
    assert set(found) == {"de", "fr", "pt-br"}
    assert found["fr"].steps[1] == replace(many, target_language="fr")
    assert [info.target_language for info in by_target([many])] == ["de", "fr", "pt-br"]


MODELS = (
    model("de>en"),
    model("en>fr"),
    model("en>fr", name="big"),
    model("en>es", name="many", target_languages=("es", "it")),
)


@pytest.mark.parametrize(
    ("wanted", "name", "target"),
    [
        ({"source": "de"}, "de>en", "en"),
        ({"source": "en", "target": "it"}, "many", "it"),
        ({"target": "IT"}, "many", "it"),
        ({"model": "many"}, "many", "es"),
        ({"model": "many", "target": "it"}, "many", "it"),
        ({"source": "en-GB", "target": "es-MX"}, "many", "es"),
    ],
)
def test_the_model_and_the_target_that_are_meant_are_found(wanted, name, target):
    found = find_model(MODELS, **wanted, with_routes=True)
    assert (found.name, found.target_language) == (name, target)
    assert not isinstance(found, Route)


def test_a_way_is_found_only_where_it_will_do_and_no_model_is_named():
    found = find_model(MODELS, source="de", target="it", with_routes=True)
    assert isinstance(found, Route)
    assert (found.via, [step.target_language for step in found.steps]) == ("en", ["en", "it"])
    for wanted in ({}, {"with_routes": True, "model": "de>en"}):
        with pytest.raises(UnknownLanguagePair) as caught:
            find_model(MODELS, source="de", target="it", **wanted)
        assert (caught.value.field, caught.value.available) == ("target", ("en",))


def test_what_can_be_reached_is_listed_with_the_ways():
    with pytest.raises(UnknownLanguagePair) as caught:
        find_model(MODELS, source="de", target="ja", with_routes=True)
    assert caught.value.available == ("en", "es", "fr", "it")
    with pytest.raises(UnknownLanguagePair) as caught:
        find_model(MODELS, source="ja", target="de", with_routes=True)
    assert (caught.value.field, caught.value.available) == ("source", ("de", "en"))


def test_several_ways_to_a_target_need_a_source():
    models = (model("de>en"), model("fi>en"), model("en>fr"), model("es>en"))
    with pytest.raises(UnknownLanguagePair) as caught:
        find_model(models[:2] + models[3:] + (model("en>it", name="x"),), target="xx", with_routes=True)
    assert caught.value.available == ("en", "it")
