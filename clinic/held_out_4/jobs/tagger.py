"""Learn what token comes next in source code with a recurrent network (DDP).

torchrun --nproc-per-node 2 tagger.py --length 48
"""

from __future__ import annotations

import argparse
import collections
import gc
import json
import re
import tempfile
import threading
from pathlib import Path

import torch
from common import Farm, Stopwatch, join, make_optimizer, make_parser
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

SOURCES = (argparse, collections, gc, json, re, tempfile, threading)
VOCABULARY = 800


def read_sources() -> str:
    paths = [Path(module.__file__) for module in SOURCES if getattr(module, "__file__", None)]
    return "\n".join(path.read_text(encoding="utf-8") for path in paths)


class Tokenizer:
    """Splits text into the longest known pieces."""

    def __init__(self, text: str) -> None:
        counts = collections.Counter(re.findall(r"\w+|\s+|[^\w\s]", text))
        self._ids = {piece: number for number, (piece, _) in enumerate(counts.most_common(VOCABULARY - 1), 1)}
        self._longest = max(map(len, self._ids))

    def encode(self, text: str) -> list[int]:
        ids, start = [], 0
        while start < len(text):
            for end in range(min(len(text), start + min(self._longest, 12)), start, -1):
                if (known := self._ids.get(text[start:end])) is not None:
                    ids.append(known)
                    start = end
                    break
            else:
                ids.append(0)
                start += 1
        return ids


class Cells(nn.Module):
    """A gated recurrent layer, written out."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(width, 3 * width), nn.Linear(width, 3 * width)

    def forward(self, value: Tensor) -> tuple[Tensor, Tensor]:
        hidden = torch.zeros_like(value[:, 0])
        outputs = []
        for place in range(value.shape[1]):
            reset, update, new = self.inner(value[:, place]).chunk(3, 1)
            old_reset, old_update, old_new = self.outer(hidden).chunk(3, 1)
            gate = torch.sigmoid(update + old_update)
            candidate = torch.tanh(new + torch.sigmoid(reset + old_reset) * old_new)
            hidden = gate * hidden + (1 - gate) * candidate
            outputs.append(hidden)
        return torch.stack(outputs, 1), hidden


class Tagger(nn.Module):
    def __init__(self, asked: argparse.Namespace) -> None:
        super().__init__()
        width = asked.width
        self.embedding = nn.Embedding(VOCABULARY, width)
        make = (lambda: Cells(width)) if asked.cells == "written" else (lambda: nn.GRU(width, width, batch_first=True))
        self.layers = nn.ModuleList(make() for _ in range(asked.layers))
        self.farm, self.head = Farm(asked.farm_ms), nn.Linear(width, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        value = self.embedding(tokens)
        for layer in self.layers:
            value = value + layer(value)[0]
        return self.head(self.farm(value))


def edit_distance(one: list[int], other: list[int]) -> int:
    row = list(range(len(other) + 1))
    for place, left in enumerate(one, 1):
        above, row[0] = row[0], place
        for column, right in enumerate(other, 1):
            above, row[column] = row[column], min(row[column] + 1, row[column - 1] + 1, above + (left != right))
    return row[-1]


class Report:
    """A table of all samples so far, worst first."""

    def __init__(self, path: Path, kept: int) -> None:
        self._path, self._kept = path, kept
        self._rows: list[dict[str, float]] = []

    def add(self, number: int, losses: list[float]) -> None:
        self._rows += [{"step": number, "sample": place, "loss": loss} for place, loss in enumerate(losses)]
        del self._rows[: -self._kept]
        self._rows.sort(key=lambda row: row["loss"])
        self._path.write_text("\n".join(f"{row['step']:6} {row['sample']:6} {row['loss']:.5f}" for row in self._rows))


class Statistics(threading.Thread):
    """Counts pairs of words over and over, for a dashboard."""

    def __init__(self, text: str, pause: float) -> None:
        super().__init__(daemon=True)
        self._words, self._pause, self._stopped = text.split(), pause, threading.Event()

    def run(self) -> None:
        while not self._stopped.wait(self._pause):
            pairs: dict[tuple[str, str], int] = {}
            for pair in zip(self._words, self._words[1:], strict=False):
                pairs[pair] = pairs.get(pair, 0) + 1
            max(pairs.values())

    def stop(self) -> None:
        self._stopped.set()
        self.join()


def make_trie(words: int) -> dict[str, object]:
    """A dictionary of dictionaries: a suffix tree for spelling."""
    root: dict[str, object] = {}
    for number in range(words):
        node = root
        for letter in str(number * 7919):
            node = node.setdefault(letter, {})  # type: ignore[assignment]
    return root


def reorder(text: str) -> list[int]:
    """Sort lines by how rare their letters are, for the sampler."""
    common = collections.Counter(text)
    lines = text.splitlines()
    return sorted(range(len(lines)), key=lambda place: sum(1 / common[letter] for letter in lines[place]))


def parse() -> argparse.Namespace:
    parser = make_parser(__doc__)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--width", type=int, default=96)
    parser.add_argument("--length", default="48", help="of samples; of each rank as 48,64")
    parser.add_argument("--cells", choices=("fused", "written"), default="fused")
    parser.add_argument("--encode", choices=("step", "once"), default="once")
    parser.add_argument("--score-every", type=int, default=0, help="steps between edit distances")
    parser.add_argument("--score-samples", type=int, default=6)
    parser.add_argument("--report-rows", type=int, default=0, help="of a step in the report")
    parser.add_argument("--report-kept", type=int, default=1_000_000)
    parser.add_argument("--statistics-pause", type=float, default=-1)
    parser.add_argument("--trie", type=int, default=0, help="words in a trie")
    parser.add_argument("--collect-every", type=int, default=0)
    parser.add_argument("--reorder-every", type=int, default=0)
    parser.add_argument("--optimizer", choices=("loop", "fused", "sgd"), default="fused")
    parser.add_argument("--detect-anomaly", action=argparse.BooleanOptionalAction, default=False)
    return parser.parse_args()


class Samples:
    def __init__(self, asked: argparse.Namespace, text: str, rank: int) -> None:
        lengths = [int(word) for word in asked.length.split(",")]
        self._length, self._batch = lengths[rank % len(lengths)], asked.batch
        self._text, self._tokenizer = text, Tokenizer(text)
        self._tokens = self._tokenizer.encode(text[:60_000]) if asked.encode == "once" else []
        self._start = 1000 * rank

    def next(self) -> Tensor:
        needed = self._batch * (self._length + 1)
        self._start = (self._start + 911) % 8000
        if self._tokens:
            ids = (self._tokens[self._start :] + self._tokens)[:needed]
        else:
            ids = self._tokenizer.encode(self._text[self._start : self._start + 6 * needed])
            ids = (ids * 6)[:needed]
        return torch.tensor(ids).view(self._batch, self._length + 1)


class Extras:
    """What is done after a step, besides training."""

    def __init__(self, asked: argparse.Namespace, text: str, folder: str, rank: int) -> None:
        self._asked, self._text = asked, text
        self._report = Report(Path(folder) / f"report-{rank}.txt", asked.report_kept)
        self._trie = make_trie(asked.trie)
        self._statistics = Statistics(text, asked.statistics_pause) if asked.statistics_pause >= 0 else None
        if self._statistics:
            self._statistics.start()

    def after(self, number: int, logits: Tensor, target: Tensor, loss: Tensor) -> None:
        asked = self._asked
        if asked.score_every and number % asked.score_every == 0:
            guesses = logits.detach().argmax(2)[: asked.score_samples].tolist()
            wrong = sum(edit_distance(one, other) for one, other in zip(guesses, target.tolist(), strict=False))
            print(f"step {number}: {wrong} edits", flush=True)
        if asked.report_rows:
            value = loss.item()
            self._report.add(number, [value + (place * 37 % 101) / 500 for place in range(asked.report_rows)])
        if asked.collect_every and number % asked.collect_every == 0:
            gc.collect()
        if asked.reorder_every and number % asked.reorder_every == 0:
            reorder(self._text)

    def close(self) -> None:
        if self._statistics:
            self._statistics.stop()


def main() -> None:
    asked = parse()
    rank, world = join(asked)
    torch.autograd.set_detect_anomaly(asked.detect_anomaly)
    text = read_sources()
    samples = Samples(asked, text, rank)
    model = DistributedDataParallel(Tagger(asked), gradient_as_bucket_view=True)
    optimizer = make_optimizer(asked.optimizer, model)
    with tempfile.TemporaryDirectory() as folder:
        extras = Extras(asked, text, folder, rank)
        watch = Stopwatch(asked.batch * world)
        for number in range(1, asked.steps + 1):
            tokens = samples.next()
            logits, target = model(tokens[:, :-1]), tokens[:, 1:]
            loss = cross_entropy(logits.flatten(0, 1), target.flatten())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            extras.after(number, logits, target, loss)
            watch.lap()
        extras.close()
    watch.finish()


if __name__ == "__main__":
    main()
