"""Phases of a job above its steps, by the names of annotations: those of its program, or of a server's scheduler.

A program names any phase itself with `record_function("phase:rollout")` or an NVTX range of that name. Names that loops
of reinforcement learning use are known without the prefix.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

PREFIX: Final = "phase:"
NO_PHASE: Final = "no phase"
"""Time outside all phases; no phase has this name."""
KNOWN_PHASES: Final = {
    "rollout": "the usual word for generating answers",
    "gen": "verl: answers are generated",
    "generate": "verl, TRL: answers are generated",
    "generate_sequences": "verl: the workers' part of `gen`",
    "reward": "verl: answers are scored",
    "old_log_prob": "verl: log probabilities of the policy that generated",
    "ref": "verl: log probabilities of the reference model",
    "values": "verl: values of the critic",
    "adv": "verl: advantages",
    "update_actor": "verl: the policy learns",
    "update_critic": "verl: the critic learns",
    "update_weights": "verl: new weights go to the server that generates",
    "train": "the usual word for learning",
}
"""Names that are phases without the prefix, and why. A name counts only if another of them is in the recording: alone,
`train` or `ref` may be anything."""

MARK: Final = re.compile(
    r"step\[(?P<sglang>[A-Z]\w*)[ \]]"  # SGLang: step[DECODE bs=64], step[EXTEND bs=4 toks=16384]
    # vLLM: execute_context_1(888)_generation_0(0), or execute_32_context_0(sq0sk0...)_generation_32(sq32sk55086...)
    r"|execute_(?:\w+_)?context_(?P<prompts>\d+)\((?:sq)?(?P<prompt_tokens>\d*)[^()]*\)"
    r"_generation_(?P<answers>\d+)\((?:sq)?(?P<answer_tokens>\d*)"
    r"|(?P<atom>prefill|decode)\[bs=\d"  # ATOM: prefill[bs=2 tok=16384]
    # TensorRT-LLM: [Executor] _forward_step 12: 0 ctx reqs, 8 gen reqs; newer ones also have `0 ctx tokens`
    r"|\[Executor\] _forward_step\b"
    r"(?:[^:]*: (?P<contexts>\d+) ctx reqs,(?: (?P<context_tokens>\d+) ctx tokens,)? (?P<generations>\d+) gen reqs)?"
)
"""What a scheduler writes around each batch that it executes."""
_REQUESTS: Final = re.compile(r"[\[ ]bs=(\d+)")
_TOKENS: Final = re.compile(r" tok(?:s|ens)?=(\d+)")
_SGLANG_KINDS: Final = {
    "EXTEND": "prefill",
    "SPLIT_PREFILL": "prefill",
    "DECODE": "decode",
    "TARGET_VERIFY": "decode",
    "MIXED": "mixed",
}
UNKNOWN_KIND: Final = "unknown"


@dataclass(frozen=True, slots=True)
class ServedBatch:
    """A batch that a server executed: one iteration of its scheduler."""

    kind: str
    """`prefill`, `decode`, `mixed`, `idle` for a batch without requests, or the scheduler's own word."""
    requests: int | None = None
    tokens: int | None = None
    """Tokens that the batch computes; None if the mark does not have them."""


def parse_mark(name: str) -> ServedBatch | None:
    """Return the batch that a scheduler's mark describes; None if it is no mark.

    >>> parse_mark("step[EXTEND bs=4 toks=16384]"), parse_mark("step[DECODE bs=64]").tokens
    (ServedBatch(kind='prefill', requests=4, tokens=16384), 64)
    >>> parse_mark("execute_context_1(888)_generation_3(3)")
    ServedBatch(kind='mixed', requests=4, tokens=891)
    >>> parse_mark("[Executor] _forward_step 12: 2 ctx reqs, 8 gen reqs")
    ServedBatch(kind='mixed', requests=10, tokens=None)
    """
    match = MARK.match(name)
    if match is None:
        return None
    if match["prompts"] is not None:
        return _count(
            int(match["prompts"]),
            _number(match["prompt_tokens"]),
            int(match["answers"]),
            _number(match["answer_tokens"]),
        )
    if match["contexts"] is not None:
        answers = int(match["generations"])
        return _count(int(match["contexts"]), _number(match["context_tokens"]), answers, answers)
    requests, tokens = _find_number(_REQUESTS, name), _find_number(_TOKENS, name)
    if mode := match["sglang"]:
        # A decoded request computes one token; with speculation it computes several, which the mark does not count.
        tokens = requests if mode == "DECODE" and tokens is None else tokens
        return ServedBatch(_SGLANG_KINDS.get(mode, mode.lower()), requests, tokens)
    return ServedBatch(match["atom"] or UNKNOWN_KIND, requests, tokens)


def _count(prompts: int, prompt_tokens: int | None, answers: int, answer_tokens: int | None) -> ServedBatch:
    kind = ("mixed" if answers else "prefill") if prompts else ("decode" if answers else "idle")
    parts = (prompt_tokens if prompts else 0, answer_tokens if answers else 0)
    known = [part for part in parts if part is not None]
    return ServedBatch(kind, prompts + answers, sum(known) if len(known) == len(parts) else None)


def _number(text: str | None) -> int | None:
    return int(text) if text else None


def _find_number(pattern: re.Pattern[str], name: str) -> int | None:
    found = pattern.search(name)
    return int(found[1]) if found else None


def name_phases(names: Collection[str]) -> dict[str, str]:
    """Return the phase of each annotation that is one, of those that a recording has.

    >>> name_phases(["phase:warm up", "gen", "reward", "loss"])
    {'phase:warm up': 'warm up', 'gen': 'gen', 'reward': 'reward'}
    >>> name_phases(["train", "phase:"])
    {}
    """
    own = {name: name.removeprefix(PREFIX).strip() for name in names if name.startswith(PREFIX)}
    known = {name: name for name in names if name in KNOWN_PHASES}
    return {name: phase for name, phase in own.items() if phase not in ("", NO_PHASE)} | (
        known if len(known) > 1 else {}
    )
