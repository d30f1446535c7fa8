"""The command `mptlml score`: areas, pseudo-log-likelihoods and order spreads of texts under a masked language model.

    mptlml score texts.txt --model NAME_OR_FOLDER -o scores.jsonl --curve curve.svg

One text per line. Several processes share the work where a launcher starts them, and a killed one is started again:
torchrun --standalone --nproc-per-node 2 --max-restarts 3 -m mptlml score ... --resume (or `accelerate launch`).
"""

import argparse
import math
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from scipy import stats

from .. import __version__
from ..extras import needs
from ..files import replacing
from .corpus_scores import file_of_part, mean_curve, read_scores, score_corpus
from .masked_lm import MaskedLM

# What the library says to a caller in Python, in the command's words.
SAID = {"allow_unknown=True": "--allow-unknown", "resume=True": "--resume", "overwrite=True": "--overwrite",
        "shorten the text, or cut a corpus with blocks()": "shorten the text", '"num_': '"'}
PICTURES = (".svg", ".png", ".pdf")


def main(words: Sequence[str] | None = None) -> None:
    """Score the texts of a file, and print a summary; leaves with a message where they cannot be scored."""
    parser = _parser()
    given = parser.parse_args(words)
    try:
        rank, world = _launched()
        own = file_of_part(given.output, rank, world, resume=given.resume, overwrite=given.overwrite)
        _check_paths(given, own)
        _check_device(given.device)
        texts = _read(given.texts)
        if given.curve:
            with needs("text"):
                import matplotlib.figure  # noqa: F401  (before the work, not after it)
        lm = _load(given)
        path = score_corpus(lm, list(texts.values()), given.output, numbers=list(texts), num_sizes=given.sizes,
                            num_masks=given.masks, num_orders=given.orders, error=given.error,
                            num_passes=given.passes, seed=given.seed, part=rank, parts=world, resume=given.resume,
                            overwrite=given.overwrite)
        scores = read_scores(path)
        print(_summary(scores) if world == 1 else f"{path}: {len(scores)} texts. When all parts are written, the same "
              "command without the launcher, with --resume, brings them together.")
        if given.curve and world == 1:
            _draw(scores, given.curve)
    except torch.OutOfMemoryError as error:
        _leave(f"out of memory: give a smaller number of --batch-tokens ({error})")
    except OSError as error:
        _leave(f"{error.filename or own}: {error.strerror}" if error.strerror else str(error))  # a full disk is unnamed
    except (ValueError, ModuleNotFoundError) as error:
        _leave(str(error))
    except RuntimeError as error:
        _leave(f"the model fails on these texts: {error}")
    except KeyboardInterrupt:
        other = " and another name for --curve" if given.curve and given.curve.exists() else ""
        _leave(f"stopped; the same command with --resume in place of --overwrite{other} goes on")


def _leave(message: str) -> NoReturn:
    for python, here in SAID.items():
        message = message.replace(python, here)
    sys.exit(f"mptlml: {message}")


def _launched() -> tuple[int, int]:
    """(which process this is, of how many), as a launcher says. Raises ValueError: nothing that a launcher says."""
    rank, world = (os.environ.get(name, default) for name, default in (("RANK", "0"), ("WORLD_SIZE", "1")))
    if not (rank.isdecimal() and world.isdecimal() and int(rank) < int(world)):
        raise ValueError(f"RANK={rank} and WORLD_SIZE={world} in the environment must be a process and their number: "
                         "0 <= RANK < WORLD_SIZE")
    return int(rank), int(world)


def _check_paths(given: argparse.Namespace, own: Path) -> None:
    """Refuse paths that cannot be written, or that hold something else, before work starts. Raises ValueError.

    own: the file that this process writes.
    """
    known = {given.texts.resolve(): "the file of texts"}
    for name, path in {"--output": own, "--curve": given.curve}.items():
        if path is None:
            continue
        if path.resolve() in known or path.exists() and given.texts.exists() and path.samefile(given.texts):
            raise ValueError(f"{name} {path} is {known.get(path.resolve(), 'the file of texts')} too")
        known[path.resolve()] = name
        if not (path.parent.is_dir() and os.access(path.parent, os.W_OK)):
            raise ValueError(f"{name} {path}: {path.parent} is no folder that can be written to")
    if given.curve is not None:
        if given.error is not None:
            raise ValueError("--error measures areas, and no curve: leave out --curve")
        if given.curve.suffix.lower() not in PICTURES:
            raise ValueError(f"--curve {given.curve} must end in one of {', '.join(PICTURES)}")
        if given.curve.is_symlink() or given.curve.exists() and not given.curve.is_file():
            raise ValueError(f"--curve {given.curve} is no ordinary file")
        if given.curve.exists() and not given.overwrite:
            raise ValueError(f"{given.curve} exists: choose another name for the picture")


def _usual_device() -> str:
    """The CPU, or the GPU: of several that which a launcher's processes share out by LOCAL_RANK."""
    if not torch.cuda.is_available():
        return "cpu"
    rank = os.environ.get("LOCAL_RANK", "")
    return f"cuda:{int(rank) % torch.cuda.device_count()}" if rank.isdecimal() else "cuda"


def _check_device(name: str) -> None:
    """Refuse a device that is not there. Raises ValueError."""
    try:
        torch.zeros(1, device=name).item()
    except (RuntimeError, AssertionError, NotImplementedError):
        there = f"cpu and {torch.cuda.device_count()} of cuda" if torch.cuda.is_available() else "cpu"
        raise ValueError(f"--device {name} is not on this machine, which has {there}") from None


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
    with needs("text"):
        from huggingface_hub.errors import HFValidationError
        from transformers.utils import logging
    if Path(given.model).is_file():
        raise ValueError(f"--model {given.model} is a file: give the folder that holds config.json and the weights")
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()  # what is missing is said once, below
    try:
        return MaskedLM.from_pretrained(given.model, device=given.device, batch_tokens=given.batch_tokens,
                                        dtype=torch.bfloat16 if given.bfloat16 else None,
                                        allow_unknown=given.allow_unknown, revision=given.revision,
                                        trust_remote_code=given.trust_remote_code)
    except (torch.OutOfMemoryError, ModuleNotFoundError):
        raise
    except Exception as error:  # transformers, its readers of weights and its tokenizers raise errors of all kinds
        nowhere = not Path(given.model).is_dir() and isinstance(error, OSError | HFValidationError)
        where = "it is no folder here, and no model of this name was found: " if nowhere else ""
        why = next(iter(str(error).splitlines()), type(error).__name__)
        raise ValueError(f"--model {given.model} cannot be used: {where}{why}") from error
    finally:
        logging.set_verbosity(verbosity)


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


def _above_zero(word: str) -> float:
    number = float(word)
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"must be above 0, got {word}")
    return number


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="mptlml", description="The area under the masked pre-training curve.")
    parser.add_argument("--version", action="version", version=f"mptlml {__version__}")
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
    score.add_argument("--error", type=_above_zero, help="measure each area to about this standard error, in nats per "
                       "text, in place of --sizes and --masks: passes go where the noise is")
    score.add_argument("--passes", type=_whole(65), default=10_000,
                       help="with --error, the most passes for the area of a text (default %(default)s)")
    score.add_argument("--revision", default="main", help="branch, tag or commit of a model by name")
    score.add_argument("--trust-remote-code", action="store_true", help="run the code that comes with the model")
    score.add_argument("--device", default=_usual_device(),
                       help="cpu, cuda, cuda:1, ... (default here: %(default)s; GPUs are untried)")
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
    if count > 2 and columns["area"].std() > 0 < columns["pseudo_log_likelihood"].std():
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
    with replacing(path) as new:
        figure.savefig(new, format=path.suffix[1:].lower())

