"""How each supported family writes its configuration: one table row per ``model_type``.

Defaults are those of the configuration classes of Hugging Face transformers 5.24 (read), which
apply to keys that a file lacks.
"""

from collections.abc import Mapping
from types import MappingProxyType

from haversack_server.memory.hf_families.encoders import ENCODERS
from haversack_server.memory.hf_families.family import ONLY_VALUES, Family, silent_keys
from haversack_server.memory.hf_families.gpt_like import GPT_LIKE
from haversack_server.memory.hf_families.llama_like import LLAMA_LIKE
from haversack_server.memory.hf_families.parallel import PARALLEL
from haversack_server.memory.hf_families.routed import ROUTED

__all__ = ["FAMILIES", "NESTED", "ONLY_VALUES", "Family", "silent_keys"]

_ROWS = (*LLAMA_LIKE, *ROUTED, *GPT_LIKE, *PARALLEL, *ENCODERS)
FAMILIES: Mapping[str, Family] = MappingProxyType({row.model_type: row for row in _ROWS})

# Models whose language part stands in a ``text_config``, and its family where that does not say.
NESTED: Mapping[str, str] = MappingProxyType(
    {
        "gemma3": "gemma3_text",
        "llama4": "llama4_text",
        "llava": "llama",
        "mistral3": "mistral",
        "qwen2_5_vl": "qwen2",
        "qwen2_vl": "qwen2",
    }
)
