import functools
import threading
import time

import pytest

from service.text import detection
from service.text.detection import UNKNOWN, detect


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Where is the train station?", "en"),
        ("PLEASE CLOSE THE DOOR.", "en"),
        ("J'ai l'impression qu'on s'est arrêtés.", "fr"),
        ("Wo ist der nächste Bahnhof?", "de"),
        ("駅はどこですか。", "ja"),
    ],
)
def test_a_sentence_is_recognised_among_the_readable_languages(text, language):
    found = detect(text, ["de", "en", "fr", "ja"])
    assert (found.language, found.looks_like) == (language, language)
    assert 0.8 < found.confidence <= 1
    assert found.candidates[0] == (found.language, found.confidence)
    assert [code for code, _ in found.candidates][1:] != []


@pytest.mark.parametrize(
    ("text", "looks_like"),
    [
        ("Où se trouve la gare, s'il vous plaît ?", "fr"),
        ("Wo ist der nächste Bahnhof?", "de"),
        ("Bugün hava çok güzel ama yarın yağmur yağacak.", "tr"),
        ("Где находится ближайший вокзал?", "ru"),
        ("火车站在哪里？", "zh"),
    ],
)
def test_another_language_is_not_taken_for_the_only_readable_one(text, looks_like):
    found = detect(text, ["en"])
    assert (found.language, found.confidence, found.looks_like) == (UNKNOWN, 0.0, looks_like)
    assert not found.is_known


@pytest.mark.parametrize("text", ["Salad", "Yes", "OK", "a", "Cancel", "Your name", "Hello {name}"])
def test_a_word_that_says_little_is_taken_for_the_only_readable_language(text):
    found = detect(text, ["en"])
    assert found.language == "en"
    assert found.confidence < 0.8


@pytest.mark.parametrize("text", ["OK", "a"])
def test_a_word_that_is_as_likely_in_two_readable_languages_is_unknown(text):
    assert detect(text, ["en", "fr"]).language == UNKNOWN


@pytest.mark.parametrize("text", ["", " \n", "🙂🙂", "12:30", "42 %", "@sam_42", "https://example.org/aller/la/gare"])
def test_what_has_no_words_has_no_language(text):
    found = detect(text, ["en", "fr"])
    assert (found.language, found.looks_like, found.candidates) == (UNKNOWN, None, (("en", 0.0), ("fr", 0.0)))


def test_addresses_and_code_do_not_count():
    text = "See https://example.org/vers/la/gare/avec/le/petit/chat or `la petite maison dans la prairie` for more."
    assert detect(text, ["en", "fr"]).language == "en"


@pytest.mark.parametrize(
    ("code", "text"), [("en-GB", "Where is it?"), ("zh_Hans", "早上好"), ("deu", "Guten Morgen Frau")]
)
def test_codes_come_back_as_the_models_say_them(code, text):
    assert detect(text, [code, "fr"]).language == code


def test_of_two_codes_of_one_language_the_first_is_meant():
    found = detect("Where is the station?", ["en-GB", "en"])
    assert found.language == "en-GB"
    assert [code for code, _ in found.candidates] == ["en-GB"]


def test_a_language_that_the_library_does_not_know_is_never_found():
    assert detect("Where is the station?", ["tlh", "en"]).language == "en"
    assert detect("Where is the station?", ["tlh"]).language == UNKNOWN


def test_a_long_text_is_judged_by_all_of_its_parts_in_bounded_time():
    french = "Il fait très beau aujourd'hui et nous allons à la plage. " * 2_000
    assert detect("Good morning. " + french, ["en", "fr"]).language == "fr"
    assert detect("Good morning, my friends. " * 40 + french, ["en", "fr"]).language == "fr"


def test_no_languages_are_an_error():
    with pytest.raises(ValueError, match="languages is empty"):
        detect("Hello.", [])


def test_the_model_is_loaded_once_by_threads_that_want_it_together(monkeypatch):
    loads, begun = [], threading.Barrier(3)
    monkeypatch.setattr(detection, "_load", functools.cache(lambda: loads.append(1) or time.sleep(0.05)))

    def want():
        begun.wait()
        detection.warm_up()

    threads = [threading.Thread(target=want) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(loads) == 1
    assert detection.is_warm()
