import pytest

from service.engine.errors import SequenceFailed
from service.engine.request import EngineRequest, RequestResult, SequenceResult, SequenceTimings
from tests.service.engine.helpers import make_request

TIMINGS = SequenceTimings(0.0, 0.0, 0.0)


def test_request_without_sequences_is_a_mistake():
    with pytest.raises(ValueError, match="no sequences"):
        EngineRequest("r", "tiny", ())


def test_request_counts_its_source_tokens():
    assert make_request(lengths=(3, 5)).num_source_tokens == 8


def test_result_names_the_first_sequence_that_failed():
    good = SequenceResult((), "stop", TIMINGS, 3, 4)
    bad = SequenceResult((), "failed", TIMINGS, 3, 0, "no luck")
    RequestResult("r", (good, good)).raise_if_failed()
    with pytest.raises(SequenceFailed, match="could not be translated: no luck") as caught:
        RequestResult("r", (good, bad, bad)).raise_if_failed()
    assert caught.value.sequence_index == 1
    assert RequestResult("r", (good, bad)).num_source_tokens == 6
    assert RequestResult("r", (good, bad)).num_target_tokens == 4
