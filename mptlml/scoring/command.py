"""The command `mptlml`: scores of texts under a masked language model, which of several is likelier, variants.

    mptlml score texts.txt --model NAME_OR_FOLDER -o scores.jsonl --curve curve.svg
    mptlml compare good.txt bad.txt --model NAME_OR_FOLDER -o pairs.jsonl
    mptlml choose questions.jsonl --columns A B C --right label --model NAME_OR_FOLDER
    mptlml variants wild.fasta --mutations table.csv --measured fitness --model NAME_OR_FOLDER

Several processes share the scoring where a launcher starts them, and a killed one is started again:

    torchrun --standalone --nproc-per-node 2 --max-restarts 3 -m mptlml score ... --resume
"""

import argparse
import math
import os
import sys
import tempfile
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats

from ..extras import needs
from ..masked_lm import MaskedLM
from .corpus_scores import (
    choose_corpus,
    compare_corpus,
    field,
    mean_curve,
    score_corpus,
    variants_corpus,
)
from .files import replacing
from .inputs import STDIN, LeftOut, Source, Text
from .results import UNIT, Line, Output, check_place, read_results, settings_file
from .sequences import LETTERS, is_mutant, is_spaced
from .texts import given as given_by

# What the library says to a caller in Python, in the command's words.
SAID = {
    "allow_unknown=True": "--allow-unknown",
    "resume=True": "--resume",
    "overwrite=True": "--overwrite",
    "or cut a corpus with blocks()": "or say --truncate",
    "say which is meant": "say which is meant, by --column or --columns",
    "spaced=True": "--letters spaced",
    "mask_token=": "--mask-token",
    "windows=True reads single=True": "--windows reads --pseudo-log-likelihood",
    "truncate=True or tokens=True": "--truncate or --tokens",
}
PROBE_SECONDS = 3
PICTURES = (".svg", ".png", ".pdf")
MISSING = ("", "nan", "na", "n/a", "none", "null")  # what tables write where nothing was measured


def run(given: argparse.Namespace) -> None:
    """Do what the words say, and print a summary; leave with a message where that fails."""
    try:
        _run(given)
        return
    except torch.OutOfMemoryError as error:
        message = f"out of memory: give a smaller number of --batch-tokens ({error})"
    except OSError as error:  # such as a full disk
        message = (
            f"{error.filename or given.output}: {error.strerror}" if error.strerror else str(error)
        )
    except (ValueError, ModuleNotFoundError) as error:
        message = str(error)
    except RuntimeError as error:
        message = f"the model fails on these texts: {error}"
    except KeyboardInterrupt:
        message = "stopped"
        if given.output:
            other = " and another name for --curve" if given.curve and given.curve.exists() else ""
            message += (
                f"; once {UNIT} texts or pairs are written, the same command with --resume in place of "
                f"--overwrite{other} goes on"
            )
    sys.exit(_in_words(message))


def _run(given: argparse.Namespace) -> None:
    given.measure, given.read, given.summary = COMMANDS[given.command]
    given.said = {name for name, value in vars(given).items() if value is not None}
    device = "cuda" if torch.cuda.is_available() else "cpu"
    usual = dict(device=device, revision="main", header=True)
    for name, value in (given.measure.__kwdefaults__ | usual).items():
        if name not in given.said:
            setattr(given, name, value)
    rank, world = _launched()
    with tempfile.TemporaryDirectory() as folder:
        output = Output(
            given.output or Path(folder, "results.jsonl"),
            rank,
            world,
            resume=given.resume,
            overwrite=given.overwrite,
        )
        path = _measure(given, output)
        results = read_results(path)
    if world > 1:
        print(
            f"{path}: {len(results)} lines. When all parts are written, the same command without the "
            "launcher, with --resume, brings them together."
        )
        return
    print("\n".join([given.summary(given, results), *_told(given, results)]))
    if given.curve:
        _plot(results, given.curve)


def _measure(given: argparse.Namespace, output: Output) -> Path:
    """What can be refused is refused before the model is loaded, or else before it is asked."""
    _check_options(given)
    _check_paths(given, output)
    if output.parts > 1 and (given.texts == STDIN or given.output is None):
        raise ValueError("several processes share files alone: give a file of texts, and --output")
    given.counts = Counter()
    items = given.read(given)
    if given.curve:
        with needs("text"):
            import matplotlib.figure  # noqa: F401  (before the work, not after it)
    lm = _load(given, items)
    options = {name: getattr(given, name) for name in given.measure.__kwdefaults__}
    read = {name: getattr(given, name) for name in ("columns", "context", "header", "counts")}
    options |= dict(
        left_out=_left_out(given), about=dict(read=dict(letters=LETTERS[lm.spaced]) | read)
    )
    texts = [one for [one] in items] if given.measure is score_corpus else items
    return given.measure(lm, texts, output, **options)


def _say(text: str) -> None:
    print(_in_words(text), file=sys.stderr)


def _left_out(given: argparse.Namespace) -> LeftOut | None:
    """Who counts and tells what cannot be scored, with --skip."""

    def left_out(text: str) -> None:
        given.counts["skipped"] += 1
        _say(f"left out: {text}")

    return left_out if given.skip else None


def _told(given: argparse.Namespace, lines: Sequence[Line]) -> list[str]:
    """What was left out or changed, for the summary."""
    windows = sum(line.get("windows", 1) > 1 for line in lines)
    numbers = [
        f"{given.counts['skipped']} skipped",
        f"{given.counts['empty']} empty",
        f"{sum(line['cut_tokens'] > 0 for line in lines)} cut",
        f"{windows} read through windows",
    ]
    numbers = [number for number in numbers if not number.startswith("0 ")]
    return [f"  {', '.join(numbers)}"] if numbers else []


def _source(given: argparse.Namespace, path: Path) -> Source:
    return Source(
        path,
        given.format,
        given.header,
        given.quotes,
        left_out=_left_out(given),
        say=_say,
        counts=given.counts,
    )


def _read_texts(given: argparse.Namespace, count: int = 1) -> list[tuple[Text, ...]]:
    source = _source(given, given.texts)
    found = source.texts(given.columns, count=count, given=given.context)
    given.columns = source.keys
    return found


def _read_pairs(given: argparse.Namespace) -> list[tuple[Text, ...]]:
    """The two texts of each pair. Raises ValueError: files that do not go together, no pair."""
    if given.other is None:
        return _read_texts(given, count=2)
    firsts, seconds = (
        _source(given, path).texts(column and [column], given=given.context)
        for path, column in zip(
            (given.texts, given.other), given.columns or [None] * 2, strict=True
        )
    )
    if len(firsts) != len(seconds):
        raise ValueError(
            f"{given.texts} holds {len(firsts)} texts, {given.other} {len(seconds)}: "
            "the first of each are a pair, and so on"
        )
    pairs = [(one, other) for [one], [other] in zip(firsts, seconds, strict=True)]
    for one, other in pairs:
        if one.line != other.line and one.name is None is other.name:
            raise ValueError(
                f"line {one.line} of {given.texts} would be compared with line {other.line} of "
                f"{given.other}: give both files the same lines"
            )
        if one.given != other.given:
            raise ValueError(
                f"line {one.line} of {given.texts} has another {given.context} than line {other.line} of "
                f"{given.other}"
            )
    if named := [(one.name, other.name) for one, other in pairs if one.name != other.name]:
        _say(f"{len(named)} pairs have two names: {named[0][0]!r} is compared with {named[0][1]!r}")
    return [*pairs]


def _read_questions(given: argparse.Namespace) -> list[tuple[Text, ...]]:
    """The answers to each question. Raises ValueError: columns that are no answers, no right one."""
    if len(given.columns) < 2:
        raise ValueError("--columns names the answers of a question: give at least two")
    source = _source(given, given.texts)
    found = source.texts(given.columns, given=given.context)
    given.columns = source.keys
    given.right, given.group = (name and source.named(name) for name in (given.right, given.group))
    for name in (given.right, given.group):
        if name in found[0][0].beside or name is None or name == given.right in source.keys:
            continue
        raise ValueError(f"{name} of {given.texts} is read as a text: name another column")
    if given.right is None:
        return found
    if given.right in source.keys:
        places = [source.keys.index(given.right) + 1] * len(found)
    else:
        places = _right(given, found)
    return [
        tuple(text._replace(right=place) for text in texts)
        for texts, place in zip(found, places, strict=True)
    ]


def _right(given: argparse.Namespace, questions: list[tuple[Text, ...]]) -> list[int]:
    """Which answer a column says is right, from 1: by number, letter, column or text. Raises ValueError."""
    labels = [str(texts[0].beside.get(given.right)).strip() for texts in questions]
    numbers = {int(label) for label in labels if label.isdecimal()}
    count, found = len(given.columns), list[int]()
    first = None if (0 in numbers) == (count in numbers) else int(0 not in numbers)
    for texts, label in zip(questions, labels, strict=True):
        ways = [*"ABCDEFGHIJ"[:count]], given.columns, [text.text.strip() for text in texts]
        places = {way.index(label) + 1 for way in ways if label in way}
        if label.isdecimal() and first is not None and 0 <= int(label) - first < count:
            places.add(int(label) - first + 1)
        if len(places) != 1:
            why = "none of the answers" if not places else "more than one of the answers"
            if label.isdecimal() and first is None and not places:
                why = "a number, and whether answers are counted from 0 or from 1 is not clear"
            raise ValueError(f"line {texts[0].line}: {label!r} in {given.right} is {why}")
        found += places
    return found


def _read_variants(given: argparse.Namespace) -> list[tuple[Text, ...]]:
    """Each mutant with the wild type. Raises ValueError: several wild types, a measured value that is none."""
    wild = replace(_source(given, given.texts), format=None).texts()
    if len(wild) > 1:
        raise ValueError(f"{given.texts} holds {len(wild)} texts: give one wild type")
    source = _source(given, given.other)
    found = source.texts(given.columns)
    if names := [name for name in source.known if is_mutant(name)]:
        raise ValueError(
            f"{given.other} names a column {names[0]}, which is a mutant: say --no-header"
        )
    given.columns = source.keys
    given.measured = given.measured and source.named(given.measured)
    if given.measured in source.keys:
        raise ValueError(
            f"{given.measured} of {given.other} is read as a text: name another column"
        )
    for [mutant] in found if given.measured else []:
        value = mutant.beside.get(given.measured)
        if _value(value) is None and str(value).strip().lower() not in MISSING:
            raise ValueError(f"line {mutant.line}: {given.measured} is {value!r}, no number")
    return [(mutant, wild[0][0]) for [mutant] in found]


def _value(cell: Any) -> float | None:
    """A measured value; None where there is none that is finite."""
    try:
        found = float(cell)
    except (TypeError, ValueError):
        return None
    return found if math.isfinite(found) else None


def _in_words(message: str) -> str:
    """A message of the library as the command says it."""
    for python, here in SAID.items():
        message = message.replace(python, here)
    return f"mptlml: {message}"


def _launched() -> tuple[int, int]:
    """Which process this is, of how many, by a launcher's environment. Raises ValueError: no such process."""
    rank, world = os.environ.get("RANK", "0"), os.environ.get("WORLD_SIZE", "1")
    if not (rank.isdecimal() and world.isdecimal() and int(rank) < int(world)):
        raise ValueError(
            f"RANK={rank} and WORLD_SIZE={world} in the environment must be a process and their "
            "number: 0 <= RANK < WORLD_SIZE"
        )
    return int(rank), int(world)


def _check_options(given: argparse.Namespace) -> None:
    """Refuse options that another makes idle. Raises ValueError."""
    scores = given.measure is score_corpus
    areas = bool(given.areas) if given.measure is variants_corpus else not given.single
    wrong = {
        "--passes bounds what --error takes: give that too, or --sizes and --masks instead": scores
        and given.error is None
        and "num_passes" in given.said,
        "--error takes the place of --sizes and --masks: leave them out": given.error is not None
        and given.said & {"num_sizes", "num_masks"},
        "--windows reads texts for --pseudo-log-likelihood alone: give that too": given.windows
        and not given.single,
        "--pseudo-log-likelihood leaves out areas: leave out --curve, --error and --orders": scores
        and given.single
        and (given.curve or given.error is not None or given.num_orders),
        "--passes and --level are of areas, which are not measured: leave them out": not areas
        and not scores
        and given.said & {"num_passes", "level"},
        "--group counts which answers are right: say --right too": given.group and not given.right,
        "say either --resume or --overwrite": given.resume and given.overwrite,
    }
    for message, is_wrong in wrong.items():
        if is_wrong:
            raise ValueError(message)


def _check_paths(given: argparse.Namespace, output: Output) -> None:
    """Refuse paths that cannot be written, or that hold something else, before work starts: ValueError."""
    sources = [path for path in (given.texts, given.other) if path is not None]
    known = {path.resolve(): "the file of texts" for path in sources}
    check_place(output.own)
    written = {"--output": output.own, "the file of settings": settings_file(output.own)}
    if given.curve is not None:
        written["--curve"] = given.curve
    for name, path in written.items():
        if (
            path.resolve() in known
            or path.exists()
            and any(map(path.samefile, filter(Path.exists, sources)))
        ):
            raise ValueError(
                f"{name} {path} is {known.get(path.resolve(), 'the file of texts')} too"
            )
        known[path.resolve()] = name
    output.check()
    if given.curve is not None:
        _check_curve(given)


def _check_curve(given: argparse.Namespace) -> None:
    check_place(given.curve)
    if given.error is not None:
        raise ValueError("--error measures areas, and no curve: leave out --curve")
    if given.curve.suffix.lower() not in PICTURES:
        raise ValueError(f"--curve {given.curve} must end in one of {', '.join(PICTURES)}")
    if given.curve.exists() and not given.overwrite:
        raise ValueError(f"{given.curve} exists: choose another name for the picture")


def _load(given: argparse.Namespace, items: Sequence[tuple[Text, ...]]) -> MaskedLM:
    """The model of a name or folder, as it reads the texts. Raises ValueError, whatever is wrong with it."""
    with needs("text"):
        from huggingface_hub.errors import HFValidationError
    if Path(given.model).is_file():
        raise ValueError(
            f"--model {given.model} is a file: "
            "give the folder that holds config.json and the weights"
        )
    try:
        with _quiet_transformers():
            lm = MaskedLM.from_pretrained(
                given.model,
                device=given.device,
                local_files_only=Path(given.model).is_dir() or not _hub_answers(),
                revision=given.revision,
                trust_remote_code=bool(given.trust_remote_code),
                float32=bool(given.float32),
                allow_unknown=bool(given.allow_unknown),
                mask_token=given.mask_token,
                **{} if given.batch_tokens is None else dict(batch_tokens=given.batch_tokens),
            )
    except (torch.OutOfMemoryError, ModuleNotFoundError):
        raise
    except (
        Exception
    ) as error:  # transformers and what it reads files with raise errors of all kinds
        nowhere = not Path(given.model).is_dir() and isinstance(error, OSError | HFValidationError)
        where = "it is no folder here, and no model of this name was found: " if nowhere else ""
        why = next(iter(str(error).splitlines()), type(error).__name__)
        if "trust_remote_code" in str(error):
            why = "it comes with code of its own, which --trust-remote-code would run"
        raise ValueError(f"--model {given.model} cannot be used: {where}{why}") from error
    if lm.model.dtype in (torch.float16, torch.bfloat16):
        _say(f"{given.model} computes in {lm.model.dtype}, as it was saved: else say --float32")
    if getattr(lm.model.config, "token_dropout", False):
        _say(
            f"{lm.kind} multiplies its embeddings by 0.88 / (1 - share of masked tokens) "
            "(token_dropout): where most are masked, its scores measure this rule too"
        )
    texts = [text for some in items for text in some]
    if given.measure is variants_corpus:  # whose first texts are names of mutants
        texts = [items[0][1]]
    lm.spaced = is_spaced(lm.tokenizer, texts, given.letters)
    try:
        return given_by(lm, given.given) if given.given else lm
    except ValueError as error:
        raise ValueError(f"--given: {error}") from None


@contextmanager
def _quiet_transformers() -> Iterator[None]:
    with needs("text"):
        from transformers.utils import logging
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)


def _hub_answers() -> bool:
    """Whether the hub can be reached, which transformers would find out by many trials."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return False
    try:
        urllib.request.urlopen(constants.ENDPOINT, timeout=PROBE_SECONDS).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


def _summary(given: argparse.Namespace, results: list[Line]) -> str:
    """What texts score on average, with standard errors over texts, and how alike two scores rank them."""
    named = {
        "area": "area",
        "pseudo_log_likelihood": "pseudo-log-likelihood",
        "order_spread": "spread over orders",
    }
    count, tokens = len(results), sum(line["tokens"] for line in results)
    columns = {name: np.array([line.get(name) for line in results], dtype=float) for name in named}
    known = {name: column for name, column in columns.items() if not np.isnan(column).any()}
    if count > 1:
        lines = [
            f"{count} texts, {tokens} tokens; means with their errors over texts, nats per text:"
        ]
        errors = {name: column.std(ddof=1) / np.sqrt(count) for name, column in known.items()}
    else:
        errors = {"area": results[0].get("area_error")}
        told = "; the error of its area over masks" if errors["area"] else ""
        lines = [f"1 text, {tokens} tokens{told}, nats per text:"]
    for name, column in known.items():
        told = "" if errors.get(name) is None else f" +- {errors[name]:.2f}"
        lines.append(f"  {named[name]:22}{column.mean():10.2f}{told}")
    for name in [name for name in ("area", "pseudo_log_likelihood") if name in known]:
        nats = known[name].sum() / tokens
        perplexity = f"; pseudo-perplexity {math.exp(-nats):.2f}" if name != "area" else ""
        lines.append(
            f"  {named[name] + ' per token':32}{nats:8.3f}, or {-nats / math.log(2):.3f} bits{perplexity}"
        )
    if count > 2 and len(known) > 1 and min(column.std() for column in [*known.values()][:2]) > 0:
        rank = stats.spearmanr(known["area"], known["pseudo_log_likelihood"]).statistic
        lines.append(f"  rank correlation of area and pseudo-log-likelihood {rank:.2f}")
    return "\n".join(lines)


def _summary_of_pairs(given: argparse.Namespace, lines: list[Line]) -> str:
    """How many signs are sure, what they are, and what that cost."""
    named = {
        "difference": "area",
        "pseudo_log_likelihood": "pseudo-log-likelihood",
        "left_to_right": "left to right",
    }
    passes, others = (sum(line[name] for line in lines) for name in ("passes", "other_passes"))
    said = [
        f"{len(lines)} pairs, {passes} passes and {others} of other scores; first minus second, nats:"
    ]
    if len(lines) <= 10:
        said += [
            f"  line {line['line']}: {line['difference']:.2f} +- {line['error']:.2f}{_doubt(line)}"
            for line in lines
        ]
    said.append(f"  sure at {given.level:g}: {sum(line['sure'] for line in lines)}")
    differ = [line for line in lines if line["passes"]]
    if len(differ) < len(lines):
        said.append(f"  ties, one text to the tokenizer: {len(lines) - len(differ)}")
    for name, title in named.items():
        values = [line[name] for line in differ]
        if values and None not in values:
            share = np.mean(np.array(values) > 0)
            said.append(f"  {'first likelier by ' + title:50}{share:6.1%}")
    return "\n".join(said)


def _summary_of_choices(given: argparse.Namespace, lines: list[Line]) -> str:
    """How many choices are decided, and how many are right, by group, with standard errors."""
    said = [f"{len(lines)} questions"]
    ways = {"likeliest_singly": "by pseudo-log-likelihood"}
    if not given.single:
        ways = {"chosen": "by area"} | ways
        decided = sum(line["decided"] for line in lines)
        said[0] += f", {sum(line['passes'] for line in lines)} passes for areas"
        said.append(f"  decided at {given.level:g}: {decided}")
    groups: dict[str, list[Line]] = {"all": lines} if given.right else {}
    for line in lines if given.right and given.group else []:
        groups.setdefault(f"{given.group} {line.get(field(given.group))}", []).append(line)
    for name, own in groups.items():
        for key, way in ways.items():
            share = np.mean([line[key] == line["right"] for line in own])
            error = math.sqrt(share * (1 - share) / len(own))
            told = f" +- {error:.1%}" if error else ""  # of all or none it would be 0
            said.append(f"  right {way}, {name} ({len(own)}): {share:.1%}{told}")
    if ties := sum(any(line[key] is None for key in ways) for line in lines):
        said.append(f"  ties, likeliest answers that are one to the tokenizer, none chosen: {ties}")
    return "\n".join(said)


def _summary_of_variants(given: argparse.Namespace, lines: list[Line]) -> str:
    """How scores of mutants rank them, beside what was measured, with intervals at 95%."""
    names = {
        "masked_marginal": "masked marginals",
        "pseudo_log_likelihood": "pseudo-log-likelihood",
        "difference": "area",
    }
    said = [f"{len(lines)} mutants, minus the wild type, nats; means with standard deviations:"]
    for name, title in names.items():
        if name not in lines[0]:
            continue
        scores = np.array([line[name] for line in lines])
        said.append(f"  {title:22}{scores.mean():10.2f} +- {scores.std():.2f}")
        if given.measured:
            values = np.array([_value(line.get(field(given.measured))) for line in lines], float)
            known = ~np.isnan(values)
            low, rank, high = rank_interval(scores[known], values[known])
            ends = "" if math.isnan(low) else f" ({low:.2f} to {high:.2f})"
            told = "none of too few or equal values" if math.isnan(rank) else f"{rank:.2f}{ends}"
            said.append(f"    rank correlation with {given.measured} ({known.sum()}): {told}")
    return "\n".join(said)


def rank_interval(one: np.ndarray, other: np.ndarray) -> tuple[float, float, float]:
    """Spearman's rank correlation of two samples [n] between the ends of its interval at 95%: (low, rank, high).

    By Fisher's transformation, with the variance (1 + rank^2 / 2) / (n - 3) of Bonett and Wright
    (2000). NaN where a sample is constant, or the interval has fewer than four values.
    """
    if len(one) < 2 or min(np.ptp(one), np.ptp(other)) == 0:
        return math.nan, math.nan, math.nan
    rank = float(stats.spearmanr(one, other).statistic)
    if len(one) < 4 or abs(rank) == 1:
        return math.nan, rank, math.nan
    half = stats.norm.ppf(0.975) * math.sqrt((1 + rank**2 / 2) / (len(one) - 3))
    return math.tanh(math.atanh(rank) - half), rank, math.tanh(math.atanh(rank) + half)


def _doubt(line: Line) -> str:
    """What remains possible for a pair whose sign is not sure."""
    if line["sure"]:
        return ""
    if not line["passes"]:
        return ", a tie"
    ends = "" if line["low"] is None else f", {line['low']:.2f} to {line['high']:.2f}"
    return f", not sure{ends}"


def _plot(lines: list[Line], path: Path) -> None:
    """The mean curve of the texts over the masking rate, into a picture file."""
    from matplotlib.figure import Figure

    rates = np.linspace(0.01, 1, 100)
    figure = Figure(figsize=(6, 3.5), layout="constrained")
    axes = figure.subplots()
    axes.plot(100 * rates, mean_curve(lines, rates), color="#0072B2")
    axes.set(xlabel="tokens masked (%)", ylabel="nats per masked token")
    axes.set_title(f"MPT curve, {len(lines)} texts", loc="left", fontsize="medium")
    axes.grid(color="#E2E2E2", linewidth=0.6)
    axes.tick_params(length=0)
    axes.spines[["top", "right"]].set_visible(False)
    kind = path.suffix[1:].lower()
    with replacing(path) as new:  # on the ground of its page, and without a date
        figure.savefig(
            new, format=kind, transparent=True, metadata={"Date": None} if kind == "svg" else None
        )


COMMANDS: dict[str, tuple[Any, Any, Any]] = {
    "score": (score_corpus, _read_texts, _summary),
    "compare": (compare_corpus, _read_pairs, _summary_of_pairs),
    "choose": (choose_corpus, _read_questions, _summary_of_choices),
    "variants": (variants_corpus, _read_variants, _summary_of_variants),
}
