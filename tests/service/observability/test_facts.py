import pytest

from service.observability.facts import RequestFacts, note_reason, request_facts, trace_id_of

TRACE = "0af7651916cd43dd8448eb211c80319c"


@pytest.mark.parametrize(
    ("header", "trace_id"),
    [
        (f"00-{TRACE}-b7ad6b7169203331-01", TRACE),
        (f"01-{TRACE}-b7ad6b7169203331-01-more", TRACE),  # a later version may say more
        (f"ff-{TRACE}-b7ad6b7169203331-01", None),
        (f"00-{'0' * 32}-b7ad6b7169203331-01", None),
        (f"00-{TRACE.upper()}-b7ad6b7169203331-01", None),
        ("", None),
        ("00-" + "a" * 1000, None),
    ],
)
def test_the_trace_is_read_from_a_valid_header_only(header, trace_id):
    assert trace_id_of(header) == trace_id


def test_a_reason_is_noted_on_the_request_that_is_served():
    note_reason("nobody listens")
    facts = RequestFacts("id")
    token = request_facts.set(facts)
    note_reason("queue-full")
    request_facts.reset(token)
    assert facts.reason == "queue-full"
