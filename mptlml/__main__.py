"""The command `mptlml score`: areas, pseudo-log-likelihoods and order spreads of texts under a masked language model.

    mptlml score texts.txt --model NAME_OR_FOLDER -o scores.jsonl --curve curve.svg

One text per line. Several processes share the work where a launcher starts them, and a killed one is started again:
torchrun --standalone --nproc-per-node 2 --max-restarts 3 -m mptlml score ... --resume (or `accelerate launch`).
"""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from scipy import stats

from .extras import needs
from .models import MaskedLM
from .models.corpus_scores import file_of_part, mean_curve, read_scores, score_corpus

# What the library says to a caller in Python, in the command's words.
SAID = {"allow_unknown=True": "--allow-unknown", "resume=True": "--resume", "overwrite=True": "--overwrite",
        "shorten the text, or cut a corpus with blocks()": "shorten the text"}
PICTURES = (".svg", ".png", ".pdf")


def main(words: Sequence[str] | None = None) -> None:
    """Score the texts of a file, and print a summary; leaves with a message where they cannot be scored."""
    parser = _parser()
    given = parser.parse_args(words)
    rank, world = (int(os.environ.get(name, default)) for name, default in (("RANK", 0), ("WORLD_SIZE", 1)))
    try:
        _check_paths(given)
        file_of_part(given.output, rank, world, resume=given.resume, overwrite=given.overwrite)
        _check_device(given.device)
        texts = _read(given.texts)
        if given.curve:
            with needs("text"):
                import matplotlib.figure  # noqa: F401  (before the work, not after it)
        lm = _load(given)
        path = score_corpus(lm, list(texts.values()), given.output, numbers=list(texts), num_sizes=given.sizes,
                            num_masks=given.masks, num_orders=given.orders, seed=given.seed, part=rank, parts=world,
                            resume=given.resume, overwrite=given.overwrite)
        scores = read_scores(path)
        print(_summary(scores) if world == 1 else f"{path}: {len(scores)} texts. When all parts are written, the same "
              "command without the launcher, with --resume, brings them together.")
        if given.curve and world == 1:
            _draw(scores, given.curve)
    except torch.OutOfMemoryError as error:
        _leave(f"out of memory: give a smaller number of --batch-tokens ({error})")
    except (OSError, ValueError, ModuleNotFoundError) as error:
        _leave(str(error))
    except KeyboardInterrupt:
        _leave("stopped; the same command with --resume goes on")


def _leave(message: str) -> NoReturn:
    for python, here in SAID.items():
        message = message.replace(python, here)
    sys.exit(f"mptlml: {message}")


def _check_paths(given: argparse.Namespace) -> None:
    """Refuse paths that cannot be written, or that hold something else, before work starts. Raises ValueError."""
    paths = {"the file of texts": given.texts, "--output": given.output, "--curve": given.curve}
    known: dict[Path, str] = {}
    for name, path in paths.items():
        if path is None:
            continue
        if path.resolve() in known:
            raise ValueError(f"{name} is {known[path.resolve()]} too: {path}")
        known[path.resolve()] = name
        if path.is_dir() or name == "--curve" and path.exists() and not path.is_file():
            raise ValueError(f"{name} is no ordinary file: {path}")
        if name != "the file of texts" and not os.access(path.parent, os.W_OK):
            raise ValueError(f"{name}: {path.parent} is no folder that can be written to")
        if name == "--curve" and path.suffix.lower() not in PICTURES:
            raise ValueError(f"--curve {path} must end in one of {', '.join(PICTURES)}")
        if name == "--curve" and path.exists() and not (given.resume or given.overwrite):
            raise ValueError(f"{path} exists: choose another picture, or replace it by overwrite=True")


def _check_device(name: str) -> None:
    """Refuse a device that is not there. Raises ValueError."""
    try:
        torch.zeros(1, device=name)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        there = f"cpu and {torch.cuda.device_count()} of cuda" if torch.cuda.is_available() else "cpu"
        raise ValueError(f"--device {name} is not on this machine, which has {there} "
                         f"({str(error).splitlines()[0]})") from None


def _read(path: Path) -> dict[int, str]:
    """The texts of a file by the numbers of their lines, from 1; blank lines are none. Raises ValueError: no text."""
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")  # with or without a mark of the byte order
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a text file in UTF-8: {error}") from None
    texts = {number: line.strip() for number, line in enumerate(lines, 1) if line.strip()}
    if not texts:
        raise ValueError(f"{path} holds no text")
    return texts


def _load(given: argparse.Namespace) -> MaskedLM:
    """The model of a name or folder. Raises ValueError, whatever is wrong with it."""
    try:
        return MaskedLM.from_pretrained(given.model, device=given.device, batch_tokens=given.batch_tokens,
                                        dtype=torch.bfloat16 if given.bfloat16 else None,
                                        allow_unknown=given.allow_unknown)
    except (torch.OutOfMemoryError, ModuleNotFoundError):
        raise
    except Exception as error:  # transformers, its readers of weights and its tokenizers raise errors of all kinds
        raise ValueError(f"--model {given.model} cannot be used: {error}") from error


def _whole(at_least: int, *others: int) -> Callable[[str], int]:
    """A reader of whole numbers from `at_least` on, or one of `others`, for argparse."""
    def read(word: str) -> int:
        number = int(word)
        if number < at_least and number not in others:
            also = "".join(f"{other} or " for other in others)
            raise argparse.ArgumentTypeError(f"must be {also}at least {at_least}, got {number}")
        return number
    read.__name__ = "whole number"
    return read


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="mptlml", description="The area under the masked pre-training curve.")
    score = parser.add_subparsers(required=True).add_parser("score", help="score the texts of a file, one per line")
    score.add_argument("texts", type=Path, help="a text file in UTF-8, one text per line")
    score.add_argument("--model", required=True, help="name or folder of a masked language model")
    score.add_argument("-o", "--output", type=Path, required=True, help="where scores go, one line of JSON per text, "
                       "whose `text` is the number of its line in the file of texts, from 1")
    score.add_argument("--curve", type=Path, help=f"draw the mean curve into this file ({', '.join(PICTURES)})")
    what_exists = score.add_mutually_exclusive_group()
    what_exists.add_argument("--resume", action="store_true", help="keep what an earlier run has written, and go on")
    what_exists.add_argument("--overwrite", action="store_true", help="replace what an earlier run has written")
    for name, read, default, what in (
            ("sizes", _whole(2), 16, "mask sizes per text"), ("masks", _whole(1), 4, "masks per size"),
            ("orders", _whole(2, 0), 4, "random orders per text, each as many passes as the text has tokens, or 0"),
            ("seed", _whole(0), 0, "of the random masks")):
        score.add_argument(f"--{name}", type=read, default=default, help=f"{what} (default {default})")
    score.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu",
                       help="cpu, cuda, cuda:1, ... (default here: %(default)s)")
    score.add_argument("--batch-tokens", type=_whole(1), help="most tokens in a pass: bounds the memory")
    score.add_argument("--bfloat16", action="store_true", help="compute in bfloat16 (autocast): the weights stay as "
                       "they are, so memory hardly falls; faster on processors made for it, slower on others; scores "
                       "are good to about 0.1%%")
    score.add_argument("--allow-unknown", action="store_true", help="score the tokenizer's unknown token as any other")
    return parser


def _summary(scores: list[dict[str, Any]]) -> str:
    """What the texts score on average, with standard errors over texts, and how far the two scores rank them alike."""
    named = {"area": "area", "pseudo_log_likelihood": "pseudo-log-likelihood", "order_spread": "spread over orders"}
    count, tokens = len(scores), sum(line["tokens"] for line in scores)
    about = f"{count} texts, {tokens} tokens; means with their errors over texts" if count > 1 else \
        f"1 text, {tokens} tokens; the error of its area over masks"
    lines = [f"{about}, nats per text:"]
    columns = {name: np.array([line[name] for line in scores], dtype=float) for name in named}
    for name, title in named.items():
        error = columns[name].std(ddof=1) / np.sqrt(count) if count > 1 else \
            scores[0]["area_error"] if name == "area" else None
        if not np.isnan(columns[name]).any():
            lines.append(f"  {title:22}{columns[name].mean():10.2f}" + ("" if error is None else f" +- {error:.2f}"))
    lines.append(f"  area per token{columns['area'].sum() / tokens:18.3f}")
    if count > 2:
        rank = stats.spearmanr(columns["area"], columns["pseudo_log_likelihood"]).statistic
        lines.append(f"  rank correlation of area and pseudo-log-likelihood {rank:.2f}")
    return "\n".join(lines)


def _draw(scores: list[dict[str, Any]], path: Path) -> None:
    """The mean curve of the texts over the masking rate, into a picture file."""
    from matplotlib.figure import Figure

    rates = np.linspace(0.01, 1, 100)
    figure = Figure(figsize=(6, 3.5), layout="constrained")
    axes = figure.subplots()
    axes.plot(rates, mean_curve(scores, rates))
    axes.set(xlabel="share of tokens masked", ylabel="nats per masked token", title=f"MPT curve, {len(scores)} texts")
    figure.savefig(path)


if __name__ == "__main__":
    main()
