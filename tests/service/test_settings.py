import re
from pathlib import Path

import pytest
from pydantic import SecretStr, ValidationError

from service.engine.limits import EngineLimits
from service.settings import Settings, SettingsError, load_settings

DOCS = Path(__file__).resolve().parents[2] / "docs/settings.md"


def faults_of(environ=None, **arguments):
    with pytest.raises(SettingsError) as caught:
        load_settings(environ or {}, **arguments)
    return caught.value.faults


def write(tmp_path, content):
    path = tmp_path / "gossamer.toml"
    path.write_text(content, encoding="utf-8")
    return {"GOSSAMER_CONFIG": str(path)}


def test_defaults_listen_on_the_loopback_address_only():
    settings = load_settings({})
    assert (settings.host, settings.port) == ("127.0.0.1", 8000)


def test_arguments_win_over_environment_over_file_over_default(tmp_path):
    environ = write(tmp_path, "port = 1\nmax_texts = 2\nmax_rows = 3\n") | {
        "GOSSAMER_PORT": "10",
        "GOSSAMER_MAX_TEXTS": "20",
    }
    settings = load_settings(environ, port=100, host=None)
    assert (settings.port, settings.max_texts, settings.max_rows) == (100, 20, 3)
    assert settings.host == "127.0.0.1"


def test_every_fault_is_listed_at_once_and_named(tmp_path):
    environ = write(tmp_path, 'prot = 1\nlog_level = "loud"\n') | {
        "GOSSAMER_PORT": "x",
        "GOSSAMER_MAX_TEXT": "1",
        "GOSSAMER_FOO": "1",
        "GOSSAMER_MAX_ROWS": "0",
    }
    faults = "\n".join(faults_of(environ, host=""))
    for part in (
        "prot in ",
        "did you mean port?",
        "log_level in ",
        "'loud'",
        "GOSSAMER_PORT: ",
        "GOSSAMER_MAX_TEXT: there is no such setting; did you mean GOSSAMER_MAX_TEXTS?",
        "GOSSAMER_MAX_ROWS: ",
        "--host: ",
    ):
        assert part in faults
    assert "GOSSAMER_FOO: there is no such setting" in faults.splitlines()
    assert len(faults.splitlines()) == 7


@pytest.mark.parametrize("content", ["port = ", "port = 'a\n", "\x00"])
def test_a_file_that_is_no_toml_is_named(tmp_path, content):
    environ = write(tmp_path, content)
    assert f"{environ['GOSSAMER_CONFIG']} is not a TOML file" in faults_of(environ)[0]


def test_a_missing_file_is_named():
    assert faults_of({"GOSSAMER_CONFIG": "missing.toml"}) == (
        "GOSSAMER_CONFIG: missing.toml cannot be read (No such file or directory)",
    )


def test_limits_that_do_not_fit_together_name_their_variable():
    (fault,) = faults_of({"GOSSAMER_MAX_WAITING_TOKENS": "100"})
    assert fault.startswith("GOSSAMER_MAX_SOURCE_TOKENS: max_source_tokens=512")
    assert "100" in fault


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PORT", "65536"),
        ("PORT", "1.5"),
        ("PORT", ""),
        ("MAX_TEXT_BYTES", "0"),
        ("REQUEST_TIMEOUT_SECONDS", "nan"),
        ("REQUEST_TIMEOUT_SECONDS", "inf"),
        ("REQUEST_TIMEOUT_SECONDS", "0"),
        ("STOP_GRACE_SECONDS", "-1"),
        ("STOP_GRACE_SECONDS", "nan"),
        ("TARGET_TOKENS_PER_SOURCE_TOKEN", "inf"),
        ("TARGET_TOKENS_PER_SOURCE_TOKEN", "nan"),
        ("TORCH_THREADS", "0"),
        ("LOG_FORMAT", "xml"),
        ("KV_CACHE_BYTES", "1GB"),
        ("TRUSTED_PROXIES", "10.0.0.0/8,proxy"),
        ("TRUSTED_PROXIES", "10.0.0.1/8"),
        ("CORS_ORIGINS", "https://a.org/path"),
        ("CORS_ORIGINS", "a.org"),
        ("ADDRESS_REQUESTS_PER_MINUTE", "0"),
        ("ALLOW_OPEN", "perhaps"),
    ],
)
def test_impossible_values_are_refused(name, value):
    (fault,) = faults_of({f"GOSSAMER_{name}": value})
    assert fault.startswith(f"GOSSAMER_{name}: ")


def test_models_are_a_path_list(tmp_path):
    assert load_settings({"GOSSAMER_MODELS": "a:b"}).models == (Path("a"), Path("b"))
    assert load_settings({}, models=(Path("c"),)).models == (Path("c"),)
    environ = write(tmp_path, 'models = ["en-fr", "/b"]')
    assert load_settings(environ).models == (tmp_path / "en-fr", Path("/b"))


def test_an_open_server_listens_to_others_only_if_it_is_told_to(tmp_path):
    (fault,) = faults_of({"GOSSAMER_HOST": "0.0.0.0"})
    assert fault.startswith("GOSSAMER_HOST: ")
    assert "GOSSAMER_KEYS_FILE" in fault
    assert "GOSSAMER_ALLOW_OPEN=true" in fault
    for host in ("::", "192.168.1.1", "example.org"):
        assert faults_of({}, host=host)[0].startswith("--host: ")
    assert load_settings({"GOSSAMER_HOST": "0.0.0.0", "GOSSAMER_ALLOW_OPEN": "true"}).host == "0.0.0.0"
    assert load_settings({"GOSSAMER_HOST": "0.0.0.0", "GOSSAMER_KEYS_FILE": "k"}).keys_file == Path("k")
    for host in ("127.0.0.1", "127.1.2.3", "::1", "localhost"):
        assert load_settings({"GOSSAMER_HOST": host}).host == host


def test_faults_between_settings_are_all_listed_too():
    faults = faults_of({"GOSSAMER_HOST": "0.0.0.0", "GOSSAMER_MAX_WAITING_TOKENS": "100"})
    assert [fault.partition(":")[0] for fault in faults] == ["GOSSAMER_MAX_SOURCE_TOKENS", "GOSSAMER_HOST"]


def test_lists_are_parted_by_commas_or_written_as_lists_in_the_file(tmp_path):
    settings = load_settings({"GOSSAMER_TRUSTED_PROXIES": "10.0.0.0/8, ::1", "GOSSAMER_CORS_ORIGINS": "https://a.org,"})
    assert (settings.trusted_proxies, settings.cors_origins) == (("10.0.0.0/8", "::1"), ("https://a.org",))
    environ = write(tmp_path, 'cors_origins = ["*"]\nkeys_file = "keys.json"')
    assert load_settings(environ).cors_origins == ("*",)
    assert load_settings(environ).keys_file == tmp_path / "keys.json"


def test_no_fault_shows_a_secret():
    (fault,) = faults_of({"GOSSAMER_LIMITS_STORAGE": "mysql://me:hunter2@db"})
    assert "hunter2" not in fault
    assert "redis://" in fault
    settings = load_settings({"GOSSAMER_LIMITS_STORAGE": "redis://me:hunter2@db"})
    assert "hunter2" not in repr(settings) + str(settings) + str(settings.model_dump())


def test_the_process_environment_is_not_read_by_the_class(monkeypatch):
    monkeypatch.setenv("GOSSAMER_PORT", "1")
    monkeypatch.setenv("PORT", "2")
    assert Settings().port == 8000
    assert load_settings().port == 1


def test_settings_cannot_be_changed():
    with pytest.raises(ValidationError):
        Settings().port = 1


def test_engine_limits_have_the_engine_s_own_defaults():
    assert Settings().engine_limits() == EngineLimits()
    assert Settings(max_rows=7).engine_limits() == EngineLimits(max_rows=7)


def test_docs_list_every_setting_with_its_default_and_no_other():
    documented = dict(re.findall(r"^\| `GOSSAMER_(\w+)` \| ([^|]*) \|", DOCS.read_text(encoding="utf-8"), re.MULTILINE))
    assert documented.pop("CONFIG").strip() == "none"
    assert documented.keys() == {name.upper() for name in Settings.model_fields}
    for name, default in documented.items():
        value = Settings.model_fields[name.lower()].default
        value = value.get_secret_value() if isinstance(value, SecretStr) else value
        value = str(value).lower() if isinstance(value, bool) else value
        shown = "none" if value in (None, ()) else f"`{value}`"
        assert default.strip() == shown, name
