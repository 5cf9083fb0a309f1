import re

import pytest

from model.config import ConfigError
from model.training.settings import load_settings, settings_from_dict
from tests.model.training.fixtures import tiny_settings

GOOD = {
    "name": "x", "source_language": "en", "target_language": "fr",
    "data": {"train": ["t.tsv"], "dev": "d.tsv", "sources": {"a": 1.0}},
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"stepz": 3}, "unknown field stepz"),
        ({"data": {**GOOD["data"], "tests": []}}, "unknown field data.tests"),
        ({"data": {"train": [], "dev": "d"}}, "missing field data.sources"),
        ({"optimizer": 3}, "optimizer is 3; it must be a table"),
        ({"total_steps": "many"}, "total_steps is 'many'"),
        ({"total_steps": 0}, "total_steps is 0; it must be at least 1"),
        ({"label_smoothing": 1.0}, "label_smoothing is 1.0"),
        ({"precision": "int4"}, "precision is 'int4'"),
        ({"optimizer": {"name": "sgd"}}, "optimizer.name is 'sgd'"),
        ({"model": {"num_heads": 7}}, "num_heads is 7"),
        ({"model": {"layers": 7}}, "unknown field"),
    ],
)
def test_a_wrong_setting_is_named(changes, complaint):
    with pytest.raises(ConfigError, match=re.escape(complaint)):
        settings_from_dict({**GOOD, **changes})


def test_paths_start_at_the_file_and_faults_name_it(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text(
        'name = "x"\nsource_language = "en"\ntarget_language = "fr"\n'
        '[data]\ntrain = ["t.tsv"]\ndev = "d.tsv"\n[data.sources]\na = 1.0\n'
    )
    assert load_settings(path).data.train == [str(tmp_path / "t.tsv")]
    path.write_text('name = "x"\nbroken')
    with pytest.raises(ConfigError, match=r"run\.toml: not valid TOML"):
        load_settings(path)
    path.write_text('name = "x"\n')
    with pytest.raises(ConfigError, match=r"run\.toml: missing field data"):
        load_settings(path)
    with pytest.raises(ConfigError, match=r"absent\.toml: no such file"):
        load_settings(tmp_path / "absent.toml")


def test_a_file_says_only_what_differs_from_its_base(tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "first.toml").write_text(
        'name = "x"\nsource_language = "en"\ntarget_language = "fr"\nseed = 3\n[model]\nd_model = 64\nd_ff = 32\n'
        '[data]\ntrain = ["t.tsv", "u.tsv"]\ndev = "d.tsv"\n[data.sources]\na = 1.0\nb = 0.5\n'
    )
    (tmp_path / "deep" / "second.toml").write_text(
        'base = "../first.toml"\nname = "y"\n[model]\nd_ff = 128\n[data]\ntrain = ["v.tsv"]\n[data.sources]\nb = 0.25\n'
    )
    settings = load_settings(tmp_path / "deep" / "second.toml")
    assert (settings.name, settings.seed) == ("y", 3)
    assert settings.model == {"d_model": 64, "d_ff": 128}
    assert settings.data.train == [str(tmp_path / "deep" / "v.tsv")]
    assert settings.data.dev == str(tmp_path / "deep" / ".." / "d.tsv")
    assert settings.data.sources == {"a": 1.0, "b": 0.25}


@pytest.mark.parametrize(
    ("base", "complaint"),
    [
        ('"run.toml"', "base goes round in a circle: run.toml -> run.toml"),
        ('"absent.toml"', "absent.toml: no such file"),
        ("3", "run.toml: base is 3; it must be str"),
    ],
)
def test_a_base_that_cannot_be_is_refused(tmp_path, base, complaint):
    (tmp_path / "run.toml").write_text(f'base = {base}\nname = "x"\n')
    with pytest.raises(ConfigError, match=re.escape(complaint)):
        load_settings(tmp_path / "run.toml")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layer": 1}, "guided_alignment.layer is 1; it must be from 0 to 0"),
        ({"head": 4}, "guided_alignment.head is 4; it must be from 0 to 3"),
        ({"weight": -1.0}, "guided_alignment.weight is -1.0"),
        ({"row": "output"}, "guided_alignment.row is 'output'; it must be predicted or input"),
        ({"links": 3}, "guided_alignment.links is 3; it must be str"),
    ],
)
def test_a_guided_head_that_cannot_be_is_refused_by_name(tmp_path, changes, message):
    with pytest.raises(ConfigError, match=message):
        tiny_settings(tmp_path, guided_alignment={"links": "links", **changes})
