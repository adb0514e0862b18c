"""The vocabulary of a Megatron-LM model: its tokenizer's, padded as Megatron pads it.

A tokenizer's files are not read; the sizes of published ones are known. Knows nothing else.
"""

from haversack_server.memory.inputs.reader import Reader

# Training scripts whose models have other usual vocabularies than a GPT.
BERT = "pretrain_bert"
T5 = "pretrain_t5"
T5_EXTRA_IDS = 100  # sentinels that T5's recipes add to the vocabulary
VOCABULARIES = {
    # Entries of the vocabulary files that these tokenizers are published with.
    "gpt2bpetokenizer": 50_257,
    "bertwordpiececase": 28_996,
    "bertwordpiecelowercase": 30_522,
    "llama2tokenizer": 32_000,
}


def padded_vocabulary(reader: Reader, tp: int, script: str) -> int | None:
    """Pad the vocabulary to a multiple of the divisor times tp; 128 is Megatron's divisor."""
    given = reader.whole("vocab-size", least=1, most=2**40)
    padded = reader.whole("padded-vocab-size", least=1, most=2**40)
    extra = reader.whole("vocab-extra-ids")
    if extra is None and script == T5:
        extra = T5_EXTRA_IDS
        reader.assume(f"vocab-extra-ids is missing: {extra}, that of T5's recipes")
    divisor = reader.whole("make-vocab-size-divisible-by", least=1, most=2**20) or 128
    tokenizer = reader.given("tokenizer-type")
    if padded is not None:
        return padded
    if given is None:
        usual = "BertWordPieceLowerCase" if script in (BERT, T5) else "GPT2BPETokenizer"
        given = _of_tokenizer(reader, str(tokenizer.value) if tokenizer else usual)
    if given is None:
        return None
    multiple = divisor * tp
    return -(-(given + (extra or 0)) // multiple) * multiple


def _of_tokenizer(reader: Reader, tokenizer: str) -> int | None:
    known = VOCABULARIES.get(tokenizer.lower())
    if known is None:
        sentence = f"is missing, and {tokenizer[:40]}'s files are not read; give it"
        reader.refuse("vocab-size", sentence)
        return None
    reader.assume(f"vocab-size is missing: {known}, that of {tokenizer[:40]}")
    return known
