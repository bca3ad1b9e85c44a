"""Model descriptions from a Hugging Face `config.json`.

Each family is read separately, because the same field means different things in them; an unknown family is refused. So
is what changes the model and is not supported: layers that differ from each other, experts beside shared ones, heads of
other tasks, quantised parameters. A missing field has the default of the family's class in transformers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from lostflops.core.errors import UsageError
from lostflops.predict.estimate.description import ModelDescription, convert

Config = dict[str, Any]
_DESCRIBE: Final = "describe the model in a TOML file (layers, hidden, heads, ...) or give a Python factory"

_UNQUANTISED: Final = "give the config of the model before it was quantised"


def is_config(fields: dict[str, Any]) -> bool:
    return "model_type" in fields


def model_of(config: Config, where: str) -> ModelDescription:
    kind = config["model_type"]
    if config.get("quantization_config"):
        raise UsageError(f"{where} has quantization_config, and quantised parameters are not supported: {_UNQUANTISED}")
    if not isinstance(kind, str) or kind not in FAMILIES:
        raise UsageError(f"{where}: model_type {kind!r} is not one of {', '.join(FAMILIES)}: {_DESCRIBE}")
    try:
        fields = FAMILIES[kind](config)
    except KeyError as error:
        raise UsageError(f"{where} has no {error}, which a {kind} model needs: {_DESCRIBE}") from None
    except TypeError as error:
        raise UsageError(f"{where} has a field that a {kind} model does not have ({error}): {_DESCRIBE}") from None
    return convert({"name": kind, **fields, **_head(config, fields)}, ModelDescription, where)


def remarks(config: Config, sequence: int) -> tuple[str, ...]:
    """Return what a config says and an estimate at this sequence length ignores."""
    window = _window(config)
    if window is None or sequence <= window:
        return ()
    told = f"Some or all layers attend to at most {window} tokens (sliding_window)"
    return (f"{told}; FLOPs and time are for attention over all {sequence}.",)


def _window(config: Config) -> int | None:
    """Return the window of attention in tokens, None without one. Qwen's is off unless it is turned on, and for late
    layers; Mistral's is on unless it is null."""
    kind = config["model_type"]
    if kind.startswith("qwen") and not (config.get("use_sliding_window") and _has_late_layers(config)):
        return None
    window = config.get("sliding_window", _WINDOWS[kind]) if kind in _WINDOWS else None
    return window if isinstance(window, int) else None


def _has_late_layers(config: Config) -> bool:
    if isinstance(kinds := config.get("layer_types"), list):
        return "sliding_attention" in kinds
    first = config.get("max_window_layers", 28)
    return config["model_type"] == "qwen3_moe" or not isinstance(first, int) or config["num_hidden_layers"] > first


def _head(config: Config, fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of the head from the class of the model; a config without a class counts as the language
    model."""
    named = config.get("architectures")
    named = [named] if isinstance(named, str) and named else named
    default = "ForMaskedLM" if fields.get("head") == "mlm" else "ForCausalLM"
    name = str(named[0]) if isinstance(named, list) and named else default
    if name.endswith("Model") and not name.endswith("LMHeadModel"):
        return {"head": "none", "tied": False, "pooler": fields.get("head") == "mlm"}
    if name.endswith(("ForCausalLM", "LMHeadModel", "ForMaskedLM")):
        return {}
    raise UsageError(f"the head of {name} is not supported: {_DESCRIBE}")


def _llama(config: Config, keys: int | None = None) -> dict[str, Any]:
    """Return the fields of a Llama model. `keys` is the number of key heads if the config does not name it; null means
    as many as heads."""
    heads = config["num_attention_heads"]
    return {
        "layers": config["num_hidden_layers"],
        "hidden": config["hidden_size"],
        "heads": heads,
        "kv_heads": config.get("num_key_value_heads", keys) or heads,
        "head_dim": config.get("head_dim") or 0,
        "ffn": config["intermediate_size"],
        "vocabulary": config["vocab_size"],
        "tied": config.get("tie_word_embeddings", False),
        "qkv_bias": config.get("attention_bias", False),
        "output_bias": config.get("attention_bias", False),
        "ffn_bias": config.get("mlp_bias", False),
    }


def _mistral(config: Config) -> dict[str, Any]:
    return _llama(config, keys=8) | {"qkv_bias": False, "output_bias": False, "ffn_bias": False}


def _mixtral(config: Config) -> dict[str, Any]:
    return _mistral(config) | {
        "experts": config["num_local_experts"],
        "experts_per_token": config["num_experts_per_tok"],
    }


def _qwen2(config: Config) -> dict[str, Any]:
    return _llama(config, keys=32) | {"qkv_bias": True, "output_bias": False, "ffn_bias": False}


def _qwen3(config: Config, keys: int = 32) -> dict[str, Any]:
    return _llama(config, keys) | {"ffn_bias": False, "qk_norm": True, "head_dim": config.get("head_dim") or 128}


def _qwen3_moe(config: Config) -> dict[str, Any]:
    if config.get("mlp_only_layers") or config.get("decoder_sparse_step", 1) != 1:
        raise UsageError(f"mixing layers with and without experts is not supported: {_DESCRIBE}")
    return _qwen3(config, keys=4) | {
        "ffn": config["moe_intermediate_size"],
        "experts": config["num_experts"],
        "experts_per_token": config["num_experts_per_tok"],
    }


def _gpt2(config: Config) -> dict[str, Any]:
    if config.get("add_cross_attention"):
        raise UsageError(f"cross-attention is not supported: {_DESCRIBE}")
    return {
        "layers": config["n_layer"],
        "hidden": config["n_embd"],
        "heads": config["n_head"],
        "ffn": config.get("n_inner") or 4 * config["n_embd"],
        "vocabulary": config["vocab_size"],
        "positions": config["n_positions"],
        "tied": config.get("tie_word_embeddings", True),
        **_WITH_BIASES,
    }


def _gpt_neox(config: Config) -> dict[str, Any]:
    has_bias = config.get("attention_bias", True)
    return {
        "layers": config["num_hidden_layers"],
        "hidden": config["hidden_size"],
        "heads": config["num_attention_heads"],
        "ffn": config["intermediate_size"],
        "vocabulary": config["vocab_size"],
        "tied": config.get("tie_word_embeddings", False),
        **_WITH_BIASES,
        "qkv_bias": has_bias,
        "output_bias": has_bias,
    }


def _bert(config: Config) -> dict[str, Any]:
    if config.get("is_decoder") or config.get("add_cross_attention"):
        raise UsageError(f"a BERT decoder is not supported: {_DESCRIBE}")
    return {
        "layers": config["num_hidden_layers"],
        "hidden": config["hidden_size"],
        "heads": config["num_attention_heads"],
        "ffn": config["intermediate_size"],
        "vocabulary": config["vocab_size"],
        "positions": config["max_position_embeddings"],
        "token_types": config.get("type_vocab_size", 2),
        "tied": config.get("tie_word_embeddings", True),
        **_WITH_BIASES,
        "embedding_norm": True,
        "final_norm": False,
        "head": "mlm",
        "causal": False,
    }


_WITH_BIASES: Final = {"gated": False, "norm": "layer", "qkv_bias": True, "output_bias": True, "ffn_bias": True}

_WINDOWS: Final = {"mistral": 4096, "mixtral": None, "qwen2": 4096, "qwen3": 4096, "qwen3_moe": 4096}
"""Value of a missing sliding_window, in families that have one."""

FAMILIES: Final[dict[str, Callable[[Config], dict[str, Any]]]] = {
    "llama": _llama,
    "mistral": _mistral,
    "mixtral": _mixtral,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "qwen3_moe": _qwen3_moe,
    "gpt2": _gpt2,
    "gpt_neox": _gpt_neox,
    "bert": _bert,
}
