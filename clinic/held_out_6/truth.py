"""What is wrong with each sick job, and where."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

JOBS: Final = Path(__file__).with_name("jobs")
NO_ID: Final = "no_id_fits"


@dataclass(frozen=True, slots=True)
class Truth:
    """The one fault of a script. `accepted` are the ids that name it; where none does, it can only be located."""

    script: str
    fault: str
    function: str
    code: str
    """Text that only the line at fault has."""
    accepted: tuple[str, ...] = ()
    ranks: int = 2
    rank: int | None = None
    layer: str = ""

    @property
    def name(self) -> str:
        return self.script.removesuffix(".py")

    @property
    def line(self) -> int:
        lines = (JOBS / self.script).read_text(encoding="utf-8").splitlines()
        (number,) = [number for number, line in enumerate(lines, 1) if self.code in line]
        return number

    @property
    def where(self) -> str:
        return f"{self.script}:{self.line} in {self.function}"


TRUTHS: Final = (
    Truth(
        "two_tower.py",
        "Every step gathers Python objects with 50 places for each user from all ranks, only to compute one hit rate.",
        "Trainer.summarize",
        "dist.all_gather_object(",
        ("host_python", "exposed_comm"),
    ),
    Truth(
        "curriculum.py",
        "Rank 0 plans the batch of every step and broadcasts it as pickled Python objects that the others wait for.",
        "my_examples",
        "dist.broadcast_object_list(",
        ("host_python", "exposed_comm"),
    ),
    Truth(
        "speech.py",
        "Batches sorted by length are dealt out in two halves, so rank 1 always has the long clips.",
        "LengthSampler.__init__",
        "mine = batches[rank::world] if interleave",
        ("work_imbalance",),
        rank=1,
    ),
    Truth(
        "molecules.py",
        "The readout sums the atoms of each molecule in a Python loop, one tiny op for each atom.",
        "Readout.forward",
        "total = total + weighted[atom]",
        ("host_bound", "host_python"),
        layer="readout",
    ),
    Truth(
        "faces_gan.py",
        "Fakes are not detached when the discriminator learns, so its backward pass also runs through the generator, "
        "whose gradients are reduced and thrown away.",
        "main",
        "judged = netD(",
    ),
    Truth(
        "distill.py",
        "The teacher runs with gradients, so the backward pass computes gradients of weights that nobody trains.",
        "Distiller.forward",
        "soft = self.teacher[0](x)",
    ),
    Truth(
        "lora.py",
        "The base weights are not frozen: their gradients are computed and reduced, though only adapters are trained.",
        "adapt",
        "if freeze:",
    ),
    Truth(
        "masked_lm.py",
        "Scores over the whole vocabulary are computed at all positions, though the loss uses only the masked seventh.",
        "ForMaskedLM.forward",
        "prediction_scores = self.head(hidden)",
        layer="decoder",
    ),
    Truth(
        "simclr.py",
        "A second forward pass of the same views computes an accuracy that is only logged.",
        "main",
        "_, similar = nt_xent(*model.module(views).chunk(2))",
    ),
    Truth(
        "multitask.py",
        "Each task's loss runs its own backward pass through the shared trunk, where one pass of the sum would do.",
        "main",
        "losses[task].backward(retain_graph",
    ),
    Truth(
        "patches.py",
        "Activation checkpointing recomputes every layer of a small model that has memory to spare.",
        "ViT.forward",
        "checkpoint(layer, x, use_reentrant=False)",
        ("recompute",),
    ),
    Truth(
        "char_lm.py",
        "Anomaly detection is left on.",
        "<module>",
        "torch.autograd.set_detect_anomaly(",
        ("debug_mode",),
    ),
    Truth(
        "resnet_small.py",
        "Hooks on all modules check every output for numbers that are not finite, and read three values of each.",
        "check_finite",
        "if not torch.isfinite(output).all().item():",
        ("sync", "host_python", "debug_mode"),
    ),
    Truth(
        "keyword_spotting.py",
        "The script's own profiler, with shapes and stacks, is on in every step.",
        "look",
        "return torch.autograd.profiler.profile(",
        ("profiler", "debug_mode"),
    ),
    Truth(
        "experts.py",
        "The router prefers the experts of rank 0, so that rank computes most of the tokens.",
        "Experts.forward",
        "weight, expert = (scores + self.bias)",
        ("expert_imbalance", "work_imbalance"),
        rank=0,
        layer="experts",
    ),
    Truth(
        "stages.py",
        "The second pipeline stage has six of eight blocks.",
        "main",
        "cuts = [4, 8] if args.fixed else [2, 8]",
        ("stage_imbalance",),
        rank=1,
    ),
    Truth(
        "crumbs.py",
        "The batch of a pipeline is cut into three times as many microbatches as the stages need, of 20 rows each.",
        "<module>",
        "training = Training(Plan(microbatches=",
        ("small_batch", "small_messages", "host_bound"),
    ),
    Truth(
        "segment.py",
        "Gradients are reduced after each of four microbatches, because no_sync is missing.",
        "main",
        "with model.no_sync() if args.fixed",
        ("missing_no_sync",),
    ),
    Truth(
        "sharded_lm.py",
        "FSDP frees the parameters of a model that fits in memory after the forward pass and gathers them again.",
        "build",
        "fully_shard(layer, reshard_after_forward=",
        ("exposed_comm",),
    ),
    Truth(
        "tutorial.py",
        "Gradients are averaged with one all-reduce for each of 60 parameters.",
        "average_gradients",
        "dist.all_reduce(param.grad.data",
        ("small_messages",),
    ),
    Truth(
        "street_scenes.py",
        "The metric is summed over ranks class by class, with sixty all-reduces of one number in every step.",
        "JaccardMeter.add",
        "dist.all_reduce(i)",
        ("small_messages", "exposed_comm"),
    ),
    Truth(
        "wide_sums.py",
        "Gradients are turned into float64 before they are reduced, which doubles what is sent.",
        "GradientSum.__call__",
        "flat = torch.cat([p.grad.view(-1) for p in self.parameters]).to(self.precision)",
        ("exposed_comm", "precision"),
    ),
    Truth(
        "captions.py",
        "Features of all places of every picture are gathered from all ranks, though only their mean is used.",
        "Clip.forward",
        "seen = everyone(self.look(grid.mean(1))) if self.pool_first",
        ("exposed_comm",),
    ),
    Truth(
        "translate.py",
        "All weights are broadcast from rank 0 after every step, though DDP keeps them the same.",
        "same_weights",
        "dist.broadcast(tensor, src=0)",
        ("exposed_comm", "small_messages"),
    ),
    Truth(
        "memory_bank.py",
        "DDP broadcasts a queue of 8 MB, which is a buffer, before every forward pass.",
        "main",
        "model = DDP(net, broadcast_buffers=",
        ("ddp_settings", "exposed_comm"),
    ),
    Truth(
        "many_fields.py",
        "find_unused_parameters is on, though every parameter is used in every step.",
        "main",
        "model = DDP(Form(), find_unused_parameters=",
        ("ddp_settings",),
    ),
    Truth(
        "split_layers.py",
        "The hidden layer between the two split layers is gathered on all ranks and then split again.",
        "shard",
        "inner = Shard(-1) if args.fixed else Replicate()",
        ("exposed_comm",),
    ),
    Truth(
        "forecast.py",
        "The model is float64 because the numbers that come from numpy are.",
        "main",
        "kind = torch.float32 if args.fixed else torch.float64",
        ("precision",),
    ),
    Truth(
        "reviews.py",
        "The dataset splits every text into word pieces again, in Python on the training thread.",
        "Reviews.encode",
        "piece = next((one for one in self.vocabulary",
        ("input_pipeline",),
    ),
    Truth(
        "logs_autoencoder.py",
        "Every step makes a new iterator of the loader, which shuffles all rows to take one batch.",
        "main",
        "next(iter(loader))",
        ("input_pipeline",),
    ),
    Truth(
        "wildlife.py",
        "Rank 1 reads and scales pictures with twelve times as many pixels, and the others wait for it.",
        "Folder.read",
        "levels = np.sort(",
        ("input_pipeline", "work_imbalance"),
        rank=1,
    ),
    Truth(
        "sessions.py",
        "numpy sums and searches the weights of 400,000 items for every draw of negatives, on the training thread.",
        "Popularity.draw",
        "drawn = self.rng.choice(ITEMS",
        ("host_python", "input_pipeline"),
    ),
    Truth(
        "ppo.py",
        "Advantages are computed number by number with .item() in two Python loops.",
        "advantages",
        "delta = rewards[t, env].item()",
        ("host_python", "sync"),
    ),
    Truth(
        "tagger.py",
        "The accuracy is counted word by word with .item() in a Python loop.",
        "Accuracy.update",
        "if guess.item() == tag.item():",
        ("host_python", "sync"),
    ),
    Truth(
        "house_prices.py",
        "The model is evaluated on the whole validation set after every second step.",
        "main",
        "error = evaluate(net, held)",
        ("evaluation",),
    ),
    Truth(
        "speaker_id.py",
        "All ranks write the whole state to disk every five steps.",
        "Checkpoints.after",
        "torch.save(state, file)",
        ("checkpoint",),
    ),
    Truth(
        "best_so_far.py",
        "All weights are copied whenever the smoothed loss is the lowest yet, which is in nearly every step.",
        "Keeper.see",
        "self.kept = copy.deepcopy(",
        ("allocation_churn", "host_python"),
    ),
    Truth(
        "q_learning.py",
        "The whole replay memory of 20 MB is copied to add 16 rows.",
        "Replay.add",
        "self.rows = torch.cat(",
        ("allocation_churn", "host_python"),
    ),
    Truth(
        "style_transfer.py",
        "gc.collect() runs in every tenth step.",
        "main",
        "gc.collect()",
        ("gc",),
    ),
    Truth(
        "monitored.py",
        "A thread of rank 0 reads the process's state 200 times a second and averages the last thousand in Python.",
        "Monitor.run",
        "self.summary = {name: sum(",
        ("background_thread",),
        rank=0,
    ),
    Truth(
        "own_adam.py",
        "A hand-written optimizer updates parameter by parameter, with a dozen small ops for each.",
        "DecoupledAdam.step",
        'state["v"] = beta2 * state["v"]',
        ("optimizer",),
    ),
    Truth(
        "denoise.py",
        "The average of the weights copies two whole state dicts and makes a third in every step.",
        "WeightAverage.update",
        "new, old = copy.deepcopy(",
        ("allocation_churn", "host_python"),
    ),
    Truth(
        "watched.py",
        "Rank 0 computes histograms of all weights and gradients in every step, and the others wait for it.",
        "Spread.histogram",
        "torch.histogram(",
        ("host_python", "work_imbalance"),
        rank=0,
    ),
    Truth(
        "documents.py",
        "A barrier after every microbatch makes ranks wait for each other where lengths would have evened out.",
        "main",
        "dist.barrier()",
        ("sync", "exposed_comm"),
    ),
    Truth(
        "pinned.py",
        "Both ranks are pinned to the same core.",
        "take_core",
        "place //= CORES_PER_RANK",
        ("contention",),
    ),
)

WELL: Final = {
    "word_lm.py": 2,
    "digits_vae.py": 2,
    "sentence_pairs.py": 2,
    "fsdp_blocks.py": 2,
    "two_way_mlp.py": 2,
    "relay.py": 2,
    "even_experts.py": 2,
    "critics.py": 2,
    "actor_critic.py": 2,
    "with_validation.py": 2,
    "big_batches.py": 3,
    "citations.py": 2,
    "skipgram.py": 2,
    "birdsong.py": 2,
    "score_matching.py": 2,
    "adapters.py": 2,
    "four_ranks.py": 4,
    "flowers.py": 2,
    "triplets.py": 2,
    "local_sgd.py": 2,
    "two_optimizers.py": 3,
    "many_scales.py": 2,
}
"""Jobs without a fault of substance, and their ranks."""
