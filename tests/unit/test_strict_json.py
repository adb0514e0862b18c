"""The limits of what is parsed: each fault is one sentence, never a traceback."""

import pytest

from haversack.errors import InvalidRequestError
from haversack.strict_json import MAX_BYTES, parse_object


def refusal(text: str) -> str:
    with pytest.raises(InvalidRequestError) as caught:
        parse_object(text, field="f")
    assert caught.value.violations[0].field.startswith("f")
    return caught.value.violations[0].description


def test_an_object_is_returned_as_it_stands() -> None:
    assert parse_object('{"a": [1, {"b": null}], "c": 1.5}', field="f") == {
        "a": [1, {"b": None}],
        "c": 1.5,
    }


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "not JSON: Expecting value in line 1, column 1"),
        ("{'a': 1}", "not JSON"),
        ('{"a": 1', "not JSON"),
        ("[]", "is a JSON array; give an object"),
        ("3", "is a JSON number; give an object"),
        ('"x"', "is a JSON string; give an object"),
        ("null", "is a JSON null; give an object"),
        ("true", "is a JSON boolean; give an object"),
        ('{"a": NaN}', "holds NaN, which is no JSON number"),
        ('{"a": -Infinity}', "holds -Infinity, which is no JSON number"),
        ('{"a": 1e999}', "holds 1e999, which is no finite number"),
        ('{"a": 1, "b": 2, "a": 3}', "the key 'a' stands twice"),
        ('{"a": {"b": 1, "b": 1}}', "the key 'b' stands twice"),
        ('{"a": ' + "9" * 5000 + "}", "an integer of thousands of digits"),
        ("{" * 30, "not JSON"),
        ('{"a":' * 17 + "1" + "}" * 17, "nested deeper than 16 levels"),
        ('{"a":' + "[" * 100_000 + "]" * 100_000 + "}", "nested deeper than 16 levels"),
        (" " * (MAX_BYTES + 1), f"has {MAX_BYTES + 1} bytes; at most {MAX_BYTES} are read"),
    ],
)
def test_a_fault_is_one_sentence(text: str, sentence: str) -> None:
    assert sentence in refusal(text)


def test_the_deepest_nesting_that_is_allowed_is_read() -> None:
    assert parse_object('{"a":' * 15 + "1" + "}" * 15, field="f")


def test_a_lone_surrogate_is_counted_and_read() -> None:
    assert parse_object('{"a": "\ud800"}', field="f") == {"a": "\ud800"}
