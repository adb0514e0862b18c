"""The models of Hugging Face transformers that are built in: by name, what they are trained on.

Which of the library's classes there are, not their code, and not torch.
"""

from collections.abc import Mapping

from haversack_server.verify.arguments import Argument

PREFIX = "library-"
# The library's classes are AutoModelFor and one of these.
TASKS: Mapping[str, str] = {
    "causal": "CausalLM",
    "masked": "MaskedLM",
    "translation": "Seq2SeqLM",
    "image": "ImageClassification",
}
_KINDS: Mapping[str, str] = {
    "causal": """
        apertus arcee biogpt bitnet bloom codegen cohere cohere2 diffllama doge ernie4_5
        exaone4 flex_olmo gemma gemma2 gemma3_text glm glm4 gpt2 gpt_bigcode gpt_neox
        gpt_oss gptj granite granitemoe granitemoeshared helium hunyuan_v1_dense jais2 lfm2
        llama mamba minimax ministral mistral mixtral mpt nanochat nemotron olmo olmo2 olmo3
        olmoe opt persimmon phi phi3 phimoe qwen2 qwen2_moe qwen3 qwen3_moe seed_oss smollm3
        stablelm starcoder2 vaultgemma xglm
    """,
    "masked": """
        bert camembert convbert data2vec-text deberta deberta-v2 distilbert electra ernie
        esm fnet layoutlm megatron-bert mobilebert modernbert nystromformer rembert roberta
        roberta-prelayernorm roformer xlm-roberta
    """,
    "translation": """
        bart blenderbot blenderbot-small led longt5 m2m_100 marian mbart mt5 mvp pegasus
        pegasus_x plbart switch_transformers t5 umt5
    """,
    "image": """
        beit dinov2 dinov2_with_registers ijepa segformer vit vit_msn
    """,
}
_SINGLE_ONLY = frozenset({"fnet"})  # PyTorch has no Fourier transform of bfloat16
_BF16 = (Argument(name="bf16", default=0, least=0, most=1),)


def models() -> Mapping[str, tuple[str, str]]:
    """Give the library's name of each model and its task, by the name of the workload."""
    return {
        PREFIX + kind.replace("_", "-").lower(): (kind, task)
        for task, kinds in _KINDS.items()
        for kind in kinds.split()
    }


def is_of_library(name: str) -> bool:
    """Whether a built-in workload is one of these."""
    return name.startswith(PREFIX)


def in_bfloat16() -> Mapping[str, tuple[str, str]]:
    """Give those of the models that bfloat16 has kernels for."""
    return {name: model for name, model in models().items() if model[0] not in _SINGLE_ONLY}


def arguments() -> Mapping[str, tuple[Argument, ...]]:
    """Give what each model takes, by the name of the workload."""
    return dict.fromkeys(in_bfloat16(), _BF16)
