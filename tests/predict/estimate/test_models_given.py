"""Models as users give them, and what they are told when one cannot be used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lostflops.core.errors import BrokenSource, UsageError
from lostflops.predict.estimate.description import ModelDescription, PlannedJob
from lostflops.predict.estimate.estimate import PlannedMachine, estimate
from lostflops.predict.estimate.huggingface import model_of
from lostflops.predict.estimate.request import Request, demand_of, request
from lostflops.predict.estimate.result import result

QWEN3_14B = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 5120,
    "num_hidden_layers": 40,
    "num_attention_heads": 40,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 17408,
    "vocab_size": 151936,
}
LLAMA_8B = """
layers = 32
hidden = 4096
heads = 32
kv_heads = 8
ffn = 14336
vocabulary = 128256
sequence = 8192
dp = 8
zero = 3
"""


def test_a_description_in_toml_or_json(tmp_path: Path) -> None:
    toml, plain = tmp_path / "llama.toml", tmp_path / "llama.json"
    toml.write_text(LLAMA_8B)
    fields = dict(line.split(" = ") for line in LLAMA_8B.split("\n") if line)
    plain.write_text(json.dumps({name: int(value) for name, value in fields.items()}))
    assert request(str(toml), {}) == request(str(plain), {})
    asked = request(str(toml), {"dp": 16, "microbatch": 2})
    assert (asked.job.dp, asked.job.zero, asked.job.sequences) == (16, 3, 32)
    assert demand_of(asked, 8).parameters == 8_030_261_248  # as Meta counts them


def test_a_hugging_face_config(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(QWEN3_14B))
    demand = demand_of(request(str(tmp_path / "config.json"), {"sequence": 128}), 8)
    assert demand.parameters == 14_768_307_200  # as the model prints
    assert demand.flops is not None
    assert demand.flops // 128 == pytest.approx(841.08e12 / 9982, rel=0.001)  # as a trainer logged it


def test_only_experts_that_a_token_visits_are_work() -> None:
    few, many = (
        ModelDescription(layers=2, hidden=64, heads=4, ffn=128, vocabulary=100, experts=count, experts_per_token=2)
        for count in (4, 64)
    )
    job = PlannedJob(sequence=16)
    small, large = demand_of(Request(few, job), 8), demand_of(Request(many, job), 8)
    router = 6 * 2 * 60 * 64 * 16
    assert small.flops is not None
    assert large.flops == small.flops + router
    assert large.parameters - small.parameters == 2 * 60 * (64 + 3 * 64 * 128)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "mamba"}, "model_type 'mamba' is not one of llama, mistral"),
        ({"model_type": ["qwen3"]}, "is not one of"),
        ({"hidden_size": "5120"}, "Expected `int`, got `str`"),
        ({"hidden_size": None}, "Expected `int`"),
        (
            {"architectures": ["Qwen3ForSequenceClassification"]},
            "head of Qwen3ForSequenceClassification is not supported",
        ),
        (
            {"model_type": "qwen3_moe", "decoder_sparse_step": 2},
            "mixing layers with and without experts is not supported",
        ),
        ({"model_type": "mixtral"}, "has no 'num_local_experts'"),
        ({"architectures": "Qwen3ForTokenClassification"}, "head of Qwen3ForTokenClassification is not supported"),
        (
            {"quantization_config": {"quant_method": "awq", "bits": 4}},
            "quantised parameters are not supported: give the",
        ),
        ({"num_key_value_heads": 7}, "not a multiple of kv_heads"),
        ({"model_type": "gpt2", "n_layer": 1, "n_head": 1, "vocab_size": 5, "n_embd": None}, "has a field that a gpt2"),
    ],
)
def test_configs_that_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        model_of(QWEN3_14B | change, "config.json")


@pytest.mark.parametrize(
    ("family", "keys"), [("llama", 64), ("mistral", 8), ("mixtral", 8), ("qwen2", 32), ("qwen3", 32), ("qwen3_moe", 4)]
)
def test_heads_of_keys_that_a_config_does_not_name(family: str, keys: int) -> None:
    """As the classes of transformers have them; null is as many as heads everywhere."""
    experts = {"num_local_experts": 4, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
    config = QWEN3_14B | experts | {"model_type": family, "num_attention_heads": 64, "quantization_config": None}
    config["architectures"] = "XForCausalLM"
    assert model_of(config | {"num_key_value_heads": None}, "config.json").keys == 64
    del config["num_key_value_heads"]
    assert model_of(config, "config.json").keys == keys


@pytest.mark.parametrize(
    ("change", "sequence", "window"),
    [
        ({"model_type": "mistral"}, 8192, 4096),
        ({"model_type": "mistral"}, 4096, None),
        ({"model_type": "mistral", "sliding_window": 1024}, 4096, 1024),
        ({"model_type": "mistral", "sliding_window": None}, 8192, None),
        ({"sliding_window": 4096}, 8192, None),
        ({"sliding_window": 4096, "use_sliding_window": False}, 8192, None),
        ({"sliding_window": 2048, "use_sliding_window": True}, 8192, 2048),
        ({"use_sliding_window": True}, 8192, 4096),
        ({"use_sliding_window": True, "max_window_layers": 40}, 8192, None),
        ({"use_sliding_window": True, "layer_types": ["full_attention"] * 40}, 8192, None),
        ({"model_type": "llama", "sliding_window": 2048}, 8192, None),
    ],
)
def test_a_window_that_is_not_followed_is_said(
    change: dict[str, Any], sequence: int, window: int | None, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(QWEN3_14B | change))
    asked = request(str(tmp_path / "config.json"), {"sequence": sequence})
    notes = result(estimate(demand_of(asked, 8), PlannedMachine("nothing")), asked.remarks).notes
    said = [note for note in notes if "sliding_window" in note]
    assert len(said) == (window is not None)
    assert all(f"attend to at most {window} tokens" in note for note in said)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("hiden = 4096", "has unknown fields: hiden; known fields: name, layers, hidden"),
        ("tp = 3", "heads 32 is not a multiple of tp 3"),
        ("pp = 33", "pp 33 is more than the number of layers"),
        ("batch = 12", "batch 12 is not a multiple of dp x microbatch"),
        ("cp = 3", "sequence 8192 is not a multiple of cp 3"),
        ("replicas = 3", "dp 8 is not a multiple of replicas 3"),
        ("experts = 4", "give both experts and experts_per_token"),
        ('dtype = "int8"', "Invalid enum value 'int8'"),
        ("microbatch = 0", "Expected `int` >= 1"),
        ("positions = 1024", "a sequence of 8192 is longer than the 1024 learned positions"),
    ],
)
def test_descriptions_that_are_refused(more: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "llama.toml"
    path.write_text(f"{LLAMA_8B}{more}\n")
    with pytest.raises(UsageError, match=message):
        demand_of(request(str(path), {}), 8)


def test_what_is_no_model_at_all(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is neither a file nor a function"):
        request("nowhere.toml", {})
    (tmp_path / "broken.toml").write_text("layers =")
    with pytest.raises(BrokenSource, match="neither TOML"):
        request(str(tmp_path / "broken.toml"), {})
    (tmp_path / "list.json").write_text("[1]")
    with pytest.raises(BrokenSource, match="does not contain an object"):
        request(str(tmp_path / "list.json"), {})
    (tmp_path / "config.json").write_text(json.dumps(QWEN3_14B))
    with pytest.raises(UsageError, match="give --seq"):
        request(str(tmp_path / "config.json"), {})
