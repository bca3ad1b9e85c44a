"""What ranks are asked for."""

import pytest

pytest.importorskip("torch")

from lostflops.collect.calibrate.__main__ import arguments


def test_each_is_measured_once_and_sizes_ascend() -> None:
    found = arguments(["--out", "x", "--only", "device,all_reduce,device", "--sizes", "4096,1024,4096"])
    assert (found.only, found.sizes) == (["device", "all_reduce"], [1024, 4096])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--sizes", "0,1024"], "give sizes above zero"),
        (["--sizes=-5"], "give sizes above zero"),
        (["--sizes", "1k"], "whole numbers of bytes"),
        (["--seconds", "0"], "from 1 to"),
        (["--seconds", "nan"], "from 1 to"),
        (["--seconds", "inf"], "from 1 to"),
        (["--only", "all_reduce,foo"], "--only foo"),
    ],
)
def test_nonsense_is_told_before_ranks_meet(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        arguments(["--out", "x", *words])
    assert said in capsys.readouterr().err
