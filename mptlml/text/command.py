"""The command `mptlml`: scores of texts under a masked language model, and which text of a pair is likelier.

    mptlml score texts.txt --model NAME_OR_FOLDER -o scores.jsonl --curve curve.svg
    mptlml compare good.txt bad.txt --model NAME_OR_FOLDER -o pairs.jsonl

Several processes share the scoring where a launcher starts them, and a killed one is started again:
torchrun --standalone --nproc-per-node 2 --max-restarts 3 -m mptlml score ... --resume (or `accelerate launch`).
"""

import argparse
import itertools
import json
import logging
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
from ..draws import seeded
from ..extras import needs
from ..files import replacing
from .corpus_scores import (
    UNIT,
    encoded,
    file_of_part,
    mean_curve,
    read_scores,
    score_corpus,
    settings_file,
    with_progress,
)
from .inputs import STDIN, Text, is_plain, read_columns, read_texts
from .int8 import int8_error
from .masked_lm import MaskedLM
from .pairs import compare

# What the library says to a caller in Python, in the command's words.
SAID = {"allow_unknown=True": "--allow-unknown", "resume=True": "--resume", "overwrite=True": "--overwrite",
        "shorten the text, or cut a corpus with blocks()": "shorten the text", '"num_': '"'}
PICTURES = (".svg", ".png", ".pdf")


def main(words: Sequence[str] | None = None) -> None:
    """Score or compare the texts of files, and print a summary; leaves with a message where they cannot be scored."""
    given = _parser().parse_args(words)
    if not sys.stderr.isatty():  # as in a batch job, where no bar is drawn
        logging.basicConfig(format="%(asctime)s %(message)s")
        logging.getLogger("mptlml").setLevel(logging.INFO)
    try:
        given.run(given)
    except torch.OutOfMemoryError as error:
        _leave(f"out of memory: give a smaller number of --batch-tokens ({error})")
    except OSError as error:
        _leave(f"{error.filename or given.output}: {error.strerror}" if error.strerror else str(error))  # a full disk
    except (ValueError, ModuleNotFoundError) as error:
        _leave(str(error))
    except RuntimeError as error:
        _leave(f"the model fails on these texts: {error}")
    except KeyboardInterrupt:
        other = " and another name for --curve" if given.curve and given.curve.exists() else ""
        _leave(f"stopped; the same command with --resume in place of --overwrite{other} goes on"
               if given.run is _score else "stopped")


def _score(given: argparse.Namespace) -> None:
    """`mptlml score`."""
    rank, world = _launched()
    own = file_of_part(given.output, rank, world, resume=given.resume, overwrite=given.overwrite)
    _check_paths(given, own)
    _check_device(given.device)
    if world > 1 and given.texts == STDIN:
        raise ValueError("several processes cannot share the standard input: give a file")
    texts = read_texts(given.texts, given.column)
    if given.curve:
        with needs("text"):
            import matplotlib.figure  # noqa: F401  (before the work, not after it)
    lm = _load(given)
    if given.skip:
        wrong = encoded(lm, texts)[1]
        texts = _without(texts, wrong)
    if given.int8 and len(texts) < 2:
        raise ValueError("--int8 needs at least two texts, on which its error is measured")
    path = score_corpus(lm, texts, given.output, num_sizes=given.sizes, num_masks=given.masks, num_orders=given.orders,
                        error=given.error, num_passes=given.passes, tokens=given.tokens, seed=given.seed, part=rank,
                        parts=world, resume=given.resume, overwrite=given.overwrite)
    scores = read_scores(path)
    if given.int8 and world == 1:
        _tell_int8(lm, [text.text for text in texts], given.seed, path)
    print(_summary(scores) if world == 1 else f"{path}: {len(scores)} texts. When all parts are written, the same "
          "command without the launcher, with --resume, brings them together.")
    if given.curve and world == 1:
        _draw(scores, given.curve)


def _tell_int8(lm: MaskedLM, texts: list[str], seed: int, path: Path) -> None:
    """Say what int8 does to the scores of at most 8 texts, here and beside the file of scores."""
    error = int8_error(lm, texts[:: -(-len(texts) // 8)], generator=seeded(seed))
    print(f"mptlml: {error}", file=sys.stderr)
    about = json.loads(settings_file(path).read_text(encoding="utf-8")) | {"int8_error": error._asdict()}
    with replacing(settings_file(path)) as new:
        new.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


def _compare(given: argparse.Namespace) -> None:
    """`mptlml compare`."""
    if given.output is not None:
        _check_paths(given, given.output)
        if given.output.exists() and not given.overwrite:
            raise ValueError(f"{given.output} exists: choose another name, or replace it by --overwrite")
    _check_device(given.device)
    pairs = _read_pairs(given)
    lm = _load(given)
    wrong = {place // 2: f"{(given.texts, given.other or given.texts)[place % 2]}, {message}"
             for place, message in encoded(lm, [text for pair in pairs for text in pair])[1].items()}
    if wrong and not given.skip:
        raise ValueError(next(iter(wrong.values())))
    pairs = _without(pairs, wrong)
    lines = []
    for unit in with_progress([range(k, min(k + UNIT, len(pairs))) for k in range(0, len(pairs), UNIT)], "pairs"):
        found = compare(lm, [(pairs[k][0].text, pairs[k][1].text) for k in unit],
                        num_passes=given.passes, level=given.level, generator=seeded(given.seed, unit[0]))
        lines += [dict(line=pairs[k][0].line, first=pairs[k][0].text, second=pairs[k][1].text) | one._asdict()
                  for k, one in zip(unit, found, strict=True)]
    if given.output is not None:
        with replacing(given.output) as new:
            new.write_text("".join(json.dumps(_finite(line)) + "\n" for line in lines), encoding="utf-8")
    print(_summary_of_pairs(lines, given.level))


def _read_pairs(given: argparse.Namespace) -> list[tuple[Text, Text]]:
    """The two texts of each pair. Raises ValueError: files that do not go together, no pair, a lonely text."""
    if given.other is None:
        pairs = [(Text(line, one.strip()), Text(line, other.strip()))
                 for line, (one, other) in read_columns(given.texts, given.columns)]
    else:
        texts = [read_texts(path) for path in (given.texts, given.other)]
        if len(texts[0]) != len(texts[1]):
            raise ValueError(f"{given.texts} holds {len(texts[0])} texts, {given.other} {len(texts[1])}: the first of "
                             "each are a pair, and so on")
        pairs = [*zip(*texts, strict=True)]
        for one, other in pairs:
            if one.line != other.line and is_plain(given.texts) and is_plain(given.other):
                raise ValueError(f"line {one.line} of {given.texts} would be compared with line {other.line} of "
                                 f"{given.other}: give both files the same blank lines")
    if not pairs:
        raise ValueError(f"{given.texts} holds no pair")
    return pairs


def _without(items: list[Any], wrong: dict[int, str]) -> list[Any]:
    """The items but for those at places that are wrong, each of which is reported."""
    for message in wrong.values():
        print(f"mptlml: left out: {_in_words(message)}", file=sys.stderr)
    if len(wrong) == len(items):
        raise ValueError("no text is left that can be scored")
    return [item for place, item in enumerate(items) if place not in wrong]


def _finite(line: dict[str, Any]) -> dict[str, Any]:
    """JSON has no word for infinity: an interval without an end has null."""
    return {key: None if isinstance(value, float) and math.isinf(value) else value for key, value in line.items()}


def _leave(message: str) -> NoReturn:
    sys.exit(f"mptlml: {_in_words(message)}")


def _in_words(message: str) -> str:
    for python, here in SAID.items():
        message = message.replace(python, here)
    return message


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
    sources = [path for path in (given.texts, given.other) if path is not None]
    known = {path.resolve(): "the file of texts" for path in sources}
    for name, path in {"--output": own, "the file of settings": settings_file(own), "--curve": given.curve}.items():
        if path is None:
            continue
        if path.resolve() in known or path.exists() and any(map(path.samefile, filter(Path.exists, sources))):
            raise ValueError(f"{name} {path} is {known.get(path.resolve(), 'the file of texts')} too")
        known[path.resolve()] = name
        if not (path.parent.is_dir() and os.access(path.parent, os.W_OK)):
            raise ValueError(f"{name} {path}: {path.parent} is no folder that can be written to")
        if path.is_symlink() or path.exists() and not path.is_file():
            raise ValueError(f"{name} {path} is no ordinary file")
    if given.curve is not None:
        if given.error is not None:
            raise ValueError("--error measures areas, and no curve: leave out --curve")
        if given.curve.suffix.lower() not in PICTURES:
            raise ValueError(f"--curve {given.curve} must end in one of {', '.join(PICTURES)}")
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
        lm = MaskedLM.from_pretrained(given.model, device=given.device, batch_tokens=given.batch_tokens,
                                      dtype=torch.bfloat16 if given.bfloat16 else None,
                                      allow_unknown=given.allow_unknown, int8=given.int8, revision=given.revision,
                                      trust_remote_code=given.trust_remote_code)
        return lm.given(given.given) if given.given else lm
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
    commands = parser.add_subparsers(required=True)
    score = commands.add_parser("score", help="score the texts of a file")
    pairs = commands.add_parser("compare", help="say of pairs of texts which is likelier")
    score.set_defaults(run=_score, other=None)
    pairs.set_defaults(run=_compare, curve=None, error=None, int8=False)
    score.add_argument("texts", type=Path, help="one text per line, a table (.csv, .tsv: with --column) or FASTA, "
                       "in UTF-8, also gzipped; - is the standard input")
    score.add_argument("--column", help="the column of the table that holds the texts, by name or by number from 1")
    score.add_argument("-o", "--output", type=Path, required=True, help="where scores go, one line of JSON per text, "
                       "whose `line` is that of the file of texts, from 1; their settings go beside it")
    score.add_argument("--curve", type=Path, help=f"draw the mean curve into this file ({', '.join(PICTURES)})")
    pairs.add_argument("texts", type=Path, help="the first texts, as for score; or a table of pairs")
    pairs.add_argument("other", type=Path, nargs="?", help="the second texts, in the order of the first")
    pairs.add_argument("--columns", nargs=2, default=["1", "2"], help="of a table of pairs, by name or by number "
                       "(default: 1 2)")
    pairs.add_argument("-o", "--output", type=Path, help="where the comparisons go, one line of JSON per pair")
    pairs.add_argument("--level", type=float, default=0.95, help="when a sign is sure (default %(default)s)")
    what_exists = score.add_mutually_exclusive_group()
    what_exists.add_argument("--resume", action="store_true", help="keep what an earlier run has written, and go on")
    for one in (what_exists, pairs):
        one.add_argument("--overwrite", action="store_true", help="replace what an earlier run has written")
    for one, name, read, default, what in (
            (score, "sizes", _whole(2), 16, "mask sizes per text"), (score, "masks", _whole(1), 4, "masks per size"),
            (score, "orders", _whole(2, 0), 4, "random orders per text, each as many passes as the text has tokens, "
             "or 0"), (score, "seed", _whole(0), 0, "of the random masks"),
            (pairs, "seed", _whole(0), 0, "of the random masks"),
            (score, "passes", _whole(65), 10_000, "with --error, the most passes for the area of a text"),
            (pairs, "passes", _whole(1), 10_000, "the most passes for a pair")):
        one.add_argument(f"--{name}", type=read, default=default, help=f"{what} (default {default})")
    score.add_argument("--error", type=_above_zero, help="measure each area to about this standard error, in nats per "
                       "text, in place of --sizes and --masks: passes go where the noise is")
    precision = score.add_mutually_exclusive_group()
    precision.add_argument("--int8", action="store_true", help="multiply in 8-bit whole numbers (CPU): two to three "
                           "times faster on some processors; what that does to scores is measured on at most 8 texts")
    score.add_argument("--tokens", action="store_true", help="write a score of each token, with its spelling")
    for one in (score, pairs):
        one.add_argument("--model", required=True, help="name or folder of a masked language model")
        one.add_argument("--given", help="a text that stands before each text and is seen, not scored")
        one.add_argument("--skip", action="store_true", help="leave out texts that cannot be scored, and say which")
        one.add_argument("--revision", default="main", help="branch, tag or commit of a model by name")
        one.add_argument("--trust-remote-code", action="store_true", help="run the code that comes with the model")
        one.add_argument("--device", default=_usual_device(),
                         help="cpu, cuda, cuda:1, ... (default here: %(default)s; GPUs are untried)")
        one.add_argument("--batch-tokens", type=_whole(1), help="most tokens in a pass: bounds the memory")
        (precision if one is score else one).add_argument(
            "--bfloat16", action="store_true", help="compute in bfloat16 (autocast): the weights stay as they are, so "
            "memory hardly falls; faster on processors made for it, slower on others; scores are good to about 0.1%%")
        one.add_argument("--allow-unknown", action="store_true", help="score unknown tokens as any other")
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
    per_token = columns["area"].sum() / tokens
    lines.append(f"  area per token{per_token:18.3f}, or {-per_token / math.log(2):.3f} bits")
    if count > 2 and columns["area"].std() > 0 < columns["pseudo_log_likelihood"].std():
        rank = stats.spearmanr(columns["area"], columns["pseudo_log_likelihood"]).statistic
        lines.append(f"  rank correlation of area and pseudo-log-likelihood {rank:.2f}")
    return "\n".join(lines)


def _summary_of_pairs(lines: list[dict[str, Any]], level: float) -> str:
    """How many signs are sure, what they are, and how far three scores agree on them."""
    named = {"difference": "area", "pseudo_log_likelihood": "pseudo-log-likelihood", "left_to_right": "left to right"}
    sign = {title: np.sign([line[name] for line in lines]) for name, title in named.items()}
    said = [f"{len(lines)} pairs, {sum(line['passes'] for line in lines)} passes; first minus second, nats:"]
    if len(lines) <= 10:
        said += [f"  line {line['line']}: {line['difference']:.2f} +- {line['error']:.2f}" +
                 ("" if line["sure"] else ", not sure") for line in lines]
    said.append(f"  sure at {level:g}: {sum(line['sure'] for line in lines)}")
    share = {f"first likelier by {title}": of > 0 for title, of in sign.items()}
    share |= {f"alike by {one} and {other}": sign[one] == sign[other]
              for one, other in itertools.combinations(sign, 2)}
    said += [f"  {title:50}{of.mean():6.1%}" for title, of in share.items()]
    return "\n".join(said)


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

