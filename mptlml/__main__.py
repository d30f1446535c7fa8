"""The command `mptlml score`: areas, pseudo-log-likelihoods and order spreads of texts under a masked language model.

    mptlml score texts.txt --model NAME_OR_FOLDER -o scores.jsonl --curve curve.svg

One text per line. Several processes share the work where a launcher starts them, and a killed one is started again:
torchrun --standalone --nproc-per-node 2 --max-restarts 3 -m mptlml score ... --resume (or `accelerate launch`).
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats

from .extras import needs
from .models import MaskedLM
from .models.corpus_scores import mean_curve, read_scores, score_corpus


def main(words: Sequence[str] | None = None) -> None:
    """Score the texts of a file, and print a summary; leaves with a message where they cannot be scored."""
    given = _parser().parse_args(words)
    rank, world = (int(os.environ.get(name, default)) for name, default in (("RANK", 0), ("WORLD_SIZE", 1)))
    try:
        texts = [line.strip() for line in given.texts.read_text(encoding="utf-8").split("\n") if line.strip()]
        lm = MaskedLM.from_pretrained(given.model, device=given.device, batch_tokens=given.batch_tokens,
                                      dtype=torch.bfloat16 if given.bfloat16 else None,
                                      allow_unknown=given.allow_unknown)
        path = score_corpus(lm, texts, given.output, num_sizes=given.sizes, num_masks=given.masks,
                            num_orders=given.orders, seed=given.seed, part=rank, parts=world, resume=given.resume)
    except (OSError, ValueError) as error:
        sys.exit(f"mptlml: {error}")
    scores = read_scores(path)
    print(_summary(scores) if world == 1 else f"{path}: {len(scores)} texts. When all parts are written, the same "
          "command without the launcher, with --resume, brings them together.")
    if given.curve and world == 1:
        _draw(scores, given.curve)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="mptlml", description="The area under the masked pre-training curve.")
    score = parser.add_subparsers(required=True).add_parser("score", help="score the texts of a file, one per line")
    score.add_argument("texts", type=Path, help="a text file, one text per line")
    score.add_argument("--model", required=True, help="name or folder of a masked language model")
    score.add_argument("-o", "--output", type=Path, required=True, help="where scores go, one line of JSON per text")
    score.add_argument("--curve", type=Path, help="draw the mean curve into this file (needs matplotlib)")
    score.add_argument("--resume", action="store_true", help="keep what an earlier run has written")
    for name, default, what in (("sizes", 16, "mask sizes per text"), ("masks", 4, "masks per size"),
                                ("orders", 4, "random orders per text, or 0"), ("seed", 0, "of the random masks")):
        score.add_argument(f"--{name}", type=int, default=default, help=f"{what} (default {default})")
    score.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    score.add_argument("--batch-tokens", type=int, help="most tokens in a pass: bounds the memory")
    score.add_argument("--bfloat16", action="store_true",
                       help="half the memory, slower on some processors, scores good to about 0.1%%")
    score.add_argument("--allow-unknown", action="store_true", help="score the tokenizer's unknown token as any other")
    return parser


def _summary(scores: list[dict[str, Any]]) -> str:
    """What the texts score on average, with standard errors over texts, and how far the two scores rank them alike."""
    named = {"area": "area", "pseudo_log_likelihood": "pseudo-log-likelihood", "order_spread": "spread over orders"}
    columns = {name: np.array([line[name] for line in scores], dtype=float) for name in named}
    count, tokens = len(scores), sum(line["tokens"] for line in scores)
    lines = [f"{count} texts, {tokens} tokens; means with their errors over texts, nats per text:"]
    for name, title in named.items():
        error = columns[name].std(ddof=1) / np.sqrt(count) if count > 1 else np.nan
        lines.append(f"  {title:22}{columns[name].mean():10.2f} +- {error:.2f}")
    lines.append(f"  area per token{columns['area'].sum() / tokens:18.3f}")
    if count > 2:
        rank = stats.spearmanr(columns["area"], columns["pseudo_log_likelihood"]).statistic
        lines.append(f"  rank correlation of area and pseudo-log-likelihood {rank:.2f}")
    return "\n".join(lines)


def _draw(scores: list[dict[str, Any]], path: Path) -> None:
    """The mean curve of the texts over the masking rate, into a picture file."""
    with needs("book"):
        from matplotlib.figure import Figure
    rates = np.linspace(0.01, 1, 100)
    figure = Figure(figsize=(6, 3.5), layout="constrained")
    axes = figure.subplots()
    axes.plot(rates, mean_curve(scores, rates))
    axes.set(xlabel="share of tokens masked", ylabel="nats per masked token", title=f"MPT curve, {len(scores)} texts")
    figure.savefig(path)


if __name__ == "__main__":
    main()
