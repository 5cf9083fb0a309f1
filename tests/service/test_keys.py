import json
import stat
import threading

import pytest

from service import keys
from service.keys import KeyFile, KeyFileError, KeyRing


@pytest.fixture
def file(tmp_path):
    return KeyFile(tmp_path / "keys.json")


def test_the_file_holds_a_hash_only_and_is_its_owner_s(file):
    key, secret = file.create("shop", ["translate"])
    assert secret.startswith(f"gossamer_{key.id}_")
    content = file.path.read_text()
    assert secret not in content
    assert secret.rsplit("_", 1)[1] not in content
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert file.read() == {key.id: key}


def test_keys_made_at_once_are_all_kept(file):
    threads = [threading.Thread(target=file.create, args=(str(number), ["inspect"])) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(key.name for key in file.read().values()) == sorted(map(str, range(8)))


def test_scopes(file):
    translate, _ = file.create("a", ["translate"])
    both, _ = file.create("b", ["inspect", "translate"])
    admin, _ = file.create("c", ["admin"])
    assert [key.allows("inspect") for key in (translate, both, admin)] == [False, True, True]
    assert [key.allows("translate") for key in (translate, both, admin)] == [True, True, True]
    assert [key.allows("admin") for key in (translate, both, admin)] == [False, False, True]
    assert not file.revoke(admin.id).allows("admin")


def test_only_the_whole_key_is_found(file):
    key, secret = file.create("shop", ["translate"])
    other, _ = file.create("other", ["translate"])
    ring = KeyRing(file.path)
    assert ring.find(secret) == key
    wrong = "A" if secret[-1] != "A" else "B"
    for presented in (secret[:-1] + wrong, secret + "x", secret.replace(key.id, other.id), key.id, key.sha256, "", "é"):
        assert ring.find(presented) is None


def test_changes_count_without_a_restart(file, monkeypatch):
    monkeypatch.setattr(keys, "_CHECK_SECONDS", 0.0)
    _, secret = file.create("shop", ["translate"])
    ring = KeyRing(file.path)
    _, later = file.create("later", ["translate"])
    assert ring.find(later) is not None
    file.revoke(secret.split("_")[1])
    assert ring.find(secret) is None


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"format": 2, "keys": []}', '{"format": 1, "keys": [{"id": "a"}]}'])
def test_a_damaged_file_is_named_at_the_start_and_changes_nothing_later(file, damage, monkeypatch, caplog):
    monkeypatch.setattr(keys, "_CHECK_SECONDS", 0.0)
    _, secret = file.create("shop", ["translate"])
    ring = KeyRing(file.path)
    file.path.write_text(damage)
    assert ring.find(secret) is not None
    assert "the keys stay as they were" in caplog.text
    with pytest.raises(KeyFileError, match=r"keys\.json"):
        KeyRing(file.path)


def test_an_unknown_scope_is_no_key(file):
    file.create("shop", ["translate"])
    content = json.loads(file.path.read_text())
    content["keys"][0]["scopes"] = ["everything"]
    file.path.write_text(json.dumps(content))
    with pytest.raises(KeyFileError, match="unknown scope"):
        file.read()


def test_a_missing_file_is_named(file):
    with pytest.raises(KeyFileError, match="cannot be read"):
        file.read()
