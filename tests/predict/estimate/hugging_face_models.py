"""Small models of Hugging Face, built from the same fields that their config.json would have."""

from __future__ import annotations

from typing import Any

_SPECIAL: dict[str, dict[str, Any]] = {
    "LlamaForCausalLM": {"model_type": "llama", "num_key_value_heads": 2, "attention_bias": True, "mlp_bias": True},
    "Qwen2ForCausalLM": {"model_type": "qwen2", "num_key_value_heads": 2, "tie_word_embeddings": True},
    "Qwen3ForCausalLM": {"model_type": "qwen3", "num_key_value_heads": 2, "head_dim": 16},
    "MistralForCausalLM": {"model_type": "mistral", "num_key_value_heads": 2},
    "GPTNeoXForCausalLM": {"model_type": "gpt_neox"},
    "GPT2LMHeadModel": {"model_type": "gpt2", "n_layer": 3, "n_embd": 48, "n_head": 6, "n_positions": 64},
    "BertForMaskedLM": {"model_type": "bert"},
    "BertModel": {"model_type": "bert"},
    "MixtralForCausalLM": {"model_type": "mixtral", "num_key_value_heads": 2, "num_local_experts": 4}
    | {"num_experts_per_tok": 2},
    "Qwen3MoeForCausalLM": {"model_type": "qwen3_moe", "num_key_value_heads": 2, "head_dim": 16, "num_experts": 4}
    | {"num_experts_per_tok": 2, "moe_intermediate_size": 64},
}
SIZES = {"num_hidden_layers": 3, "hidden_size": 48, "num_attention_heads": 6, "intermediate_size": 128}
COMMON = {"vocab_size": 211, "max_position_embeddings": 64, "type_vocab_size": 2, "pad_token_id": 0}
CONFIGS = {name: SIZES | COMMON | fields | {"architectures": [name]} for name, fields in _SPECIAL.items()}


def build(name: str) -> Any:
    import transformers

    kind = getattr(transformers, name)
    made = kind(kind.config_class(**{key: value for key, value in CONFIGS[name].items() if key != "architectures"}))
    made.config._experts_implementation = "eager"  # torch does not count FLOPs of grouped products
    return made
