import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from curate.verify.verdict import MOST_EVIDENCE, Verdict, evidence_text

TEXT = st.text(max_size=300)
VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT, lambda inner: st.lists(inner, max_size=4)
)


@settings(deadline=None, max_examples=100)
@given(st.dictionaries(TEXT, VALUE, max_size=12), st.integers(2, 400))
def test_evidence_is_json_of_bounded_length(evidence: dict[str, Any], most: int) -> None:
    text = evidence_text(evidence, most)
    assert len(text) <= most
    assert json.loads(text).keys() <= evidence.keys()


def test_what_is_short_is_kept_whole_and_what_is_long_is_cut() -> None:
    evidence = {"message": "x" * 20_000, "index": [1, 2], "expected": 0.5}
    kept = json.loads(evidence_text(evidence))
    assert (kept["index"], kept["expected"]) == ([1, 2], 0.5)
    assert 500 < len(kept["message"]) < MOST_EVIDENCE
    assert evidence["message"].startswith(kept["message"])


def test_only_what_is_not_correct_has_evidence() -> None:
    evidence = {"launches": {"k": 1}, "message": "no"}
    assert Verdict("a", "correct", evidence=evidence).to_row()["evidence"] is None
    wrong = Verdict("a", "crash", evidence=evidence).to_row()
    assert json.loads(wrong["evidence"]) == evidence
