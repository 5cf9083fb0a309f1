import json
from pathlib import Path

from babel import Locale

from service.api.dialects import languages

TABLE = Path(languages.__file__).with_name("language_names.json")


def test_the_table_of_names_is_cldr_s():
    assert json.loads(TABLE.read_text(encoding="utf-8")) == dict(Locale("en").languages)


def test_names_are_found_whatever_the_writing_of_the_code():
    assert languages.english_name("fr") == "French"
    assert languages.english_name("FR") == "French"
    assert languages.english_name("pt-BR") == "Brazilian Portuguese"
    assert languages.english_name("zh_Hans") == "Simplified Chinese"
    assert languages.english_name("de-LI") == "German"
    assert languages.english_name("qqq") == "qqq"
