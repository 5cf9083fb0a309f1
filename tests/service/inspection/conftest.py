"""A real server for each number format, with several tiny models of unequal depths."""

import time
import warnings

import pytest
import torch
from starlette.testclient import TestClient

from model.checkpoint import load_checkpoint, save_checkpoint
from model.importers.marian import import_marian
from model.linear import has_int8_kernels
from service.app import create_app
from service.engine.async_engine import AsyncEngine
from service.engine.replayer import ModelReplayer
from service.engine.runner import Runner
from service.settings import Settings
from tests.data.make_tiny_checkpoint import FOLDER
from tests.model.tiny import tiny_model

SHAPES = {
    "deep-encoder": {"num_encoder_layers": 6, "num_decoder_layers": 2},
    "deep-decoder": {"num_encoder_layers": 2, "num_decoder_layers": 6, "norm": "pre", "final_norm": True},
    "rotary": {"positions": "rotary", "norm": "pre", "final_norm": True},
}
MODELS = ("tiny", *SHAPES, "marian")
PATIENCE_SECONDS = 240


class Server:
    """A client, and the checkpoints that its server runs, in float32."""

    def __init__(self, client, folders):
        self.client = client
        self.folders = folders

    def post(self, path, *, status=200, accept=None, etag=None, **body):
        headers = {name: value for name, value in (("Accept", accept), ("If-None-Match", etag)) if value}
        response = self.client.post(f"/v1/{path}", json={"model": "tiny"} | body, headers=headers)
        assert response.status_code == status, response.text
        return response

    def json(self, path, **body):
        return self.post(path, **body).json()

    def translate(self, text, model="tiny", **decoding):
        body = {"text": text, "model": model, "decoding": decoding, "return": ["tokens", "scores", "segments"]}
        response = self.client.post("/v1/translate", json=body)
        assert response.status_code == 200, response.text
        return response.json()["translations"][0]

    def checkpoint(self, name):
        return load_checkpoint(self.folders[name])


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """Checkpoints by the names of their models."""
    from tests.model.importers.marian_folders import make_model, write_folder  # takes seconds to import

    root = tmp_path_factory.mktemp("models")
    tokenizer = FOLDER / "tokenizer.model"
    vocab_size = load_checkpoint(FOLDER).config.source_vocab_size
    for name, changes in SHAPES.items():
        model = tiny_model(source_vocab_size=vocab_size, target_vocab_size=vocab_size, **changes)
        _end_sentences(model)
        save_checkpoint(
            root / name, model, tokenizer, name=name, source_language="en", target_language="fr", dtype=torch.float32
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        write_folder(root / "theirs", make_model(separate=True))
        import_marian(root / "theirs", root / "marian", name="marian")
    return {"tiny": FOLDER, **{name: root / name for name in (*SHAPES, "marian")}}


def _end_sentences(model):
    """A random model repeats itself for ever; a little less of that is enough here."""
    with torch.no_grad():
        model.output.weight[model.config.eos_id] *= 2.0


def start(folders, precision, **settings):
    """A client of a server; a context manager. Its models are random, so nobody asks them whether they translate."""
    settings = Settings(**({"precision": precision, "torch_threads": 1} | settings))
    checkpoints = [load_checkpoint(folder) for folder in folders.values()]
    limits = settings.engine_limits()
    runner = Runner(checkpoints, limits, 1, precision)
    tokenizers = {checkpoint.name: checkpoint.tokenizer for checkpoint in checkpoints}
    engine = AsyncEngine(lambda: runner, limits)
    return TestClient(create_app(settings, engine, tokenizers, replayer=ModelReplayer(checkpoints)))


def wait_until_ready(client):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while client.get("/readyz").status_code != 200:
        assert time.monotonic() < deadline, client.get("/readyz").text
        time.sleep(0.05)


@pytest.fixture(scope="session", params=["float32", "int8"])
def server(request, folders):
    if request.param == "int8" and not has_int8_kernels():
        pytest.skip("torch has no int8 kernels for this processor")
    with start(folders, request.param) as client:
        wait_until_ready(client)
        yield Server(client, folders)


@pytest.fixture(scope="session")
def float_server(folders):
    with start(folders, "float32") as client:
        wait_until_ready(client)
        yield Server(client, folders)
