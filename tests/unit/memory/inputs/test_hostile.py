"""Documents that mean harm, or nothing: nesting, aliases, tags, huge numbers, doubled keys."""

import pytest
from tests.unit.memory.inputs.samples import read, settings, written

from haversack.errors import InvalidRequestError
from haversack.run import DocumentFormat
from haversack_server.memory.inputs.yaml_text import MAX_BYTES

JSON_FORMATS = [
    DocumentFormat.DEEPSPEED,
    DocumentFormat.TORCHTITAN_JSON,
    DocumentFormat.MEGATRON_ARGUMENTS,
    DocumentFormat.HF_TRAINING_ARGUMENTS,
]
YAML_FORMATS = [
    DocumentFormat.ACCELERATE,
    DocumentFormat.MEGATRON_ARGUMENTS,
    DocumentFormat.HF_TRAINING_ARGUMENTS,
]


def refusal(kind: DocumentFormat, text: str) -> str:
    with pytest.raises(InvalidRequestError) as caught:
        read(written(kind, text))
    assert caught.value.field.startswith("documents[0].text")
    sentence = str(caught.value)
    assert len(sentence) < 400
    assert "\n" not in sentence
    return sentence


@pytest.mark.parametrize("kind", JSON_FORMATS)
@pytest.mark.parametrize(
    ("text", "word"),
    [
        ('{"a": NaN}', "NaN"),
        ('{"a": 1e999}', "finite"),
        ('{"a": 1, "a": 2}', "twice"),
        ('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}", "nested"),
        ('{"a": ' + "9" * 10_000 + "}", "digits"),
        ('{"a": 1', "not JSON"),
    ],
)
def test_json_that_means_harm_is_one_sentence(kind: DocumentFormat, text: str, word: str) -> None:
    assert word in refusal(kind, text)


@pytest.mark.parametrize("kind", YAML_FORMATS)
@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("a: &a [x, x]\nb: *a\n", "alias"),
        ("a: 1\na: 2\n", "twice"),
        ("a: !!python/object/apply:os.system [ls]\n", "not YAML"),
        ("a: " + "[" * 200 + "]" * 200 + "\n", "nested"),
        ("a: 2024-13-45\n", "not YAML"),
        ("a: " + "9" * 10_000 + "\n", "not YAML"),
        ("a: [1, 2\n", "not YAML"),
        ("a: 'b\n", "not YAML"),
        ("a: \x00\n", "not YAML"),
        ("a: 1\n" * (MAX_BYTES // 5 + 1), "at most"),
    ],
)
def test_yaml_that_means_harm_is_one_sentence(kind: DocumentFormat, text: str, word: str) -> None:
    assert word in refusal(kind, text)


def test_a_bomb_of_aliases_is_refused_before_it_grows() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 8)}]" for i in range(1, 12)]
    assert "alias" in refusal(DocumentFormat.ACCELERATE, "\n".join(lines))


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("a = 1\na = 2\n", "not TOML"),
        ("a = " + "[" * 10_000 + "]" * 10_000 + "\n", "not TOML"),
        ("a = " + "9" * 10_000 + "\n", "not TOML"),
        ("a = nan\n[training]\nseq_len = nan\n", "give a whole number"),
        ("x" * (2**20 + 1), "at most"),
    ],
)
def test_toml_that_means_harm_is_one_sentence(text: str, word: str) -> None:
    assert word in refusal(DocumentFormat.TORCHTITAN_TOML, text)


NO_MAPPINGS = ["", " ", "[]", "null", "- a\n- b\n", "just words"]
SENTENCES = {
    DocumentFormat.DEEPSPEED: ("is not JSON", "a JSON array; give an object", "a JSON null"),
    DocumentFormat.TORCHTITAN_JSON: ("is not JSON", "a JSON array; give an object", "a JSON null"),
    DocumentFormat.ACCELERATE: ("is empty; give", "list; give keys", "YAML str; give keys"),
    DocumentFormat.HF_TRAINING_ARGUMENTS: ("is empty; give", "list; give keys", "str; give keys"),
}


@pytest.mark.parametrize("kind", SENTENCES)
@pytest.mark.parametrize("text", NO_MAPPINGS)
def test_a_text_that_is_no_mapping_is_one_sentence(kind: DocumentFormat, text: str) -> None:
    said = refusal(kind, text)
    assert any(sentence in said for sentence in SENTENCES[kind]), said


@pytest.mark.parametrize("text", NO_MAPPINGS)
def test_words_without_options_are_listed_as_ignored(text: str) -> None:
    reading = read(written(DocumentFormat.MEGATRON_ARGUMENTS, text))
    assert reading.ignored == tuple(text.split())


def test_an_empty_table_says_nothing_and_words_are_none() -> None:
    for text in NO_MAPPINGS:
        if text.strip():
            assert "not TOML" in refusal(DocumentFormat.TORCHTITAN_TOML, text)
        else:
            assert read(written(DocumentFormat.TORCHTITAN_TOML, text)).ignored == ()


def test_a_quote_that_never_ends_is_one_sentence() -> None:
    assert "No closing quotation" in refusal(DocumentFormat.MEGATRON_ARGUMENTS, "--a 'b")


@pytest.mark.parametrize("value", [-1, 0, 1.5, True, "many", [1], {"a": 1}, 2**63, 1e300, ""])
def test_a_size_that_cannot_be_is_refused_at_its_key(value: object) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        settings(
            written(DocumentFormat.HF_TRAINING_ARGUMENTS, {"per_device_train_batch_size": value})
        )
    assert "per_device_train_batch_size" in str(caught.value)


def test_a_key_with_a_dot_is_not_taken_for_a_section() -> None:
    values = {"zero_optimization.stage": 3, "bf16": {"enabled": True}}
    reading = read(written(DocumentFormat.DEEPSPEED, values))
    assert reading.ignored == ('"zero_optimization.stage"',)


def test_a_section_that_is_not_modelled_is_named_as_a_whole() -> None:
    values = {"compression_training": {"a": {"b": 1}}, "bf16": {"enabled": True}}
    reading = read(written(DocumentFormat.DEEPSPEED, values))
    assert reading.unmodelled == ("file: compression_training: compression: not modelled yet",)
    assert reading.ignored == ()


def test_half_a_character_and_line_breaks_can_be_written() -> None:
    text = (
        '{"\\ud800\\n key": "\\udfff", "optimizer": {"type": "\\ud800"}, "zero_optimization": {}}'
    )
    reading = read(written(DocumentFormat.DEEPSPEED, text))
    for sentence in (*reading.ignored, *reading.unmodelled, *reading.assumptions):
        sentence.encode()
        assert "\n" not in sentence
