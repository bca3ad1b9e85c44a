import json
from pathlib import Path

import pytest

DESCRIPTION = "layers = 4\nhidden = 256\nheads = 4\nffn = 1024\nvocabulary = 1000\nsequence = 128\ndp = 8\n"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(DESCRIPTION)
    return path


def test_text_ends_with_the_launch(lostflops, model: Path) -> None:
    outcome = lostflops("estimate", model, "--device", "H100-SXM5", "--zero", "1", "--tp", "2")
    assert outcome.code == 0
    assert "on 16 ranks of H100-SXM5: a step takes" in outcome.out.replace("\n", " ")
    assert "fits" in outcome.out
    assert outcome.out.endswith("Next: lostflops run -- torchrun --nnodes=2 --nproc-per-node=8 train.py\n")


def test_json_has_figures(lostflops, model: Path) -> None:
    outcome = lostflops("estimate", model, "--device", "B200", "--batch", "32", "--compiled", "--json")
    answer = json.loads(outcome.out)
    assert answer["schema"] == "lostflops.estimate/1"
    assert answer["model"]["parameters"] == 2 * 256_000 + 256 + 4 * (2 * 256 + 4 * 256**2 + 3 * 256 * 1024)
    assert answer["model"]["tokens_per_step"] == 32 * 128
    assert answer["step"]["low"] <= answer["step"]["high"]
    assert 0 < answer["step"]["mfu_low"] <= answer["step"]["mfu_high"] < 1
    assert answer["memory"]["fits"] == "yes"
    (reduced,) = answer["communication"]
    assert (reduced["op"], reduced["ranks"], reduced["hosts"]) == ("all_reduce", 8, 1)
    assert "NCCL" in reduced["source"]


def test_flags_go_before_the_description(lostflops, model: Path) -> None:
    outcome = lostflops("estimate", model, "--dp", "1", "--seq", "64", "--memory", "1KiB", "--json")
    answer = json.loads(outcome.out)
    assert (answer["model"]["tokens_per_step"], answer["communication"]) == (64, [])
    assert answer["memory"]["fits"] == "no"
    assert "step" not in answer
    assert "give --device" in answer["verdict"]


def test_hosts_that_nobody_described_are_said_to_be_taken(lostflops, model: Path) -> None:
    taken = "Assumes 8 devices per host: to change that, give --topology or --calibration."
    assert taken in json.loads(lostflops("estimate", model, "--json").out)["notes"]
    assert taken not in json.loads(lostflops("estimate", model, "--device", "B200", "--json").out)["notes"]


def test_a_window_that_is_not_followed_is_a_note(lostflops, tmp_path: Path) -> None:
    config = {"model_type": "mistral", "num_hidden_layers": 2, "hidden_size": 256, "num_attention_heads": 8}
    config |= {"intermediate_size": 512, "vocab_size": 1000, "sliding_window": 64}
    (tmp_path / "config.json").write_text(json.dumps(config))
    outcome = lostflops("estimate", tmp_path / "config.json", "--seq", "128", "--json")
    assert any("attend to at most 64 tokens" in note for note in json.loads(outcome.out)["notes"])


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nowhere.json"], 2, "is neither a file nor a function"),
        (["MODEL", "--device", "H1000"], 2, "no device is called 'H1000': write one of"),
        (["MODEL", "--tp", "3"], 2, "is not a multiple of tp 3"),
        (["MODEL", "--topology", "nowhere"], 2, "neither a file nor a known topology"),
    ],
)
def test_what_cannot_be_carried_out(arguments: list[str], code: int, message: str, lostflops, model: Path) -> None:
    outcome = lostflops("estimate", *(str(model) if word == "MODEL" else word for word in arguments))
    assert outcome.code == code
    assert message in outcome.err
