import pytest

from lostflops.core.errors import UsageError
from lostflops.predict.fit.batch_argument import batch_argument


@pytest.mark.parametrize(
    ("words", "name", "other"),
    [
        (["python", "t.py", "--batch-size", "32"], "--batch-size", ["python", "t.py", "--batch-size", "7"]),
        (["python", "t.py", "--batch_size=32"], "--batch_size", ["python", "t.py", "--batch_size=7"]),
        (["python", "t.py", "-b", "32", "--lr", "1"], "-b", ["python", "t.py", "-b", "7", "--lr", "1"]),
        (["python", "t.py", "-b32"], "-b", ["python", "t.py", "-b7"]),
        (["t", "--per_device_train_batch_size", "32"], "--per_device_train_batch_size", None),
        (["torchrun", "--nproc-per-node", "4", "t.py", "--micro-batch-size", "32"], "--micro-batch-size", None),
        (
            ["t", "data.batch_size=32", "eval.batch_size=9"],
            "data.batch_size",
            ["t", "data.batch_size=7", "eval.batch_size=9"],
        ),
        (["t", "+train.bs=32"], "train.bs", ["t", "+train.bs=7"]),
        (["t", "--training.local_batch_size", "32"], "--training.local_batch_size", None),
        (["t", "--eval-batch-size", "5", "--bs", "32"], "--bs", None),
    ],
)
def test_the_batch_size_is_found_and_replaced(words: list[str], name: str, other: list[str] | None) -> None:
    found = batch_argument(words)
    assert (found.name, found.size) == (name, 32)
    expected = other or [word.replace("32", "7") for word in words]
    assert found.replace_batch_size(words, 7) == expected


def test_several_are_listed() -> None:
    with pytest.raises(UsageError, match=r"--global-batch-size \(64\), --micro-batch-size \(4\).*--argument NAME"):
        batch_argument(["t", "--global-batch-size", "64", "--micro-batch-size", "4"])


def test_a_name_decides() -> None:
    words = ["t", "--global-batch-size", "64", "--micro-batch-size", "4", "--width", "3"]
    assert batch_argument(words, "micro_batch_size").size == 4
    assert batch_argument(words, "--width").replace_batch_size(words, 5)[-1] == "5"
    with pytest.raises(UsageError, match=r"--depth appears nowhere .*--global-batch-size, --micro-batch-size, --width"):
        batch_argument(words, "--depth")


@pytest.mark.parametrize(
    "words", [["t"], ["t", "--batch-size", "auto"], ["t", "--eval-batch-size", "4"], ["t", "--bs=0"]]
)
def test_none_is_refused(words: list[str]) -> None:
    with pytest.raises(UsageError, match="no argument of the command looks like"):
        batch_argument(words)
