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
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats

from .. import __version__
from ..extras import needs
from ..files import replacing
from .corpus_scores import (
    FIELDS,
    choose_corpus,
    compare_corpus,
    mean_curve,
    score_corpus,
    variants_corpus,
)
from .inputs import FORMATS, STDIN, LeftOut, Source, Text
from .masked_lm import MaskedLM
from .pairs import LEAST_PASSES
from .results import UNIT, Line, Output, check_place, read_results, settings_file
from .sequences import LETTERS, is_spaced, tell_rare

# What the library says to a caller in Python, in the command's words.
SAID = {
    "allow_unknown=True": "--allow-unknown",
    "resume=True": "--resume",
    "overwrite=True": "--overwrite",
    "say truncate=True, or cut a corpus with blocks()": "or say --truncate",
    "say which is meant": "say which is meant, by --column or --columns",
    "spaced=True": "--letters spaced",
    "mask_token=": "--mask-token",
    "float32=True": "--float32",
    "windows=True reads single=True": "--windows reads --pseudo-log-likelihood",
    "truncate=True or tokens=True": "--truncate or --tokens",
}
PICTURES = (".svg", ".png", ".pdf")
BFLOAT16 = (
    "compute in bfloat16 (autocast): the weights stay as they are, so memory hardly falls; faster on "
    "processors made for it, slower on others; scores are good to about 0.1%%"
)


def main(words: Sequence[str] | None = None) -> None:
    """Score or compare the texts of files, and print a summary; leave with a message where that fails."""
    given = _parser().parse_args(words)
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
        _draw(results, given.curve)


def _measure(given: argparse.Namespace, output: Output) -> Path:
    """What can be refused is refused before the model is loaded, or else before it is asked."""
    _check_options(given)
    _check_paths(given, output)
    _check_device(given.device)
    if output.parts > 1 and (given.texts == STDIN or given.output is None):
        raise ValueError("several processes share files alone: give a file of texts, and --output")
    given.counts = Counter()
    items = given.read(given)
    if given.curve:
        with needs("text"):
            import matplotlib.figure  # noqa: F401  (before the work, not after it)
    variants = given.measure is variants_corpus  # whose other texts are names of mutants
    lm = _load(given, items[0][1:] if variants else [text for texts in items for text in texts])
    options = {name: getattr(given, name) for name in given.measure.__kwdefaults__}
    read = dict(
        letters=LETTERS[lm.spaced],
        columns=given.columns,
        context=given.context,
        header=given.header,
        counts=given.counts,
    )
    options |= dict(left_out=_left_out(given), about=dict(read=read))
    return given.measure(lm, [*map(given.item, items)], output, **options)


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


def _read_texts(given: argparse.Namespace) -> list[tuple[Text, ...]]:
    return _source(given, given.texts).texts(given.columns, given=given.context)


def _read_pairs(given: argparse.Namespace) -> list[tuple[Text, ...]]:
    """The two texts of each pair. Raises ValueError: files that do not go together, no pair."""
    if given.other is None:
        return _source(given, given.texts).texts(given.columns, count=2, given=given.context)
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
        if one.name != other.name:
            _say(f"{one.name!r} is compared with {other.name!r}")
    return [*pairs]


def _read_questions(given: argparse.Namespace) -> list[tuple[Text, ...]]:
    """The answers to each question. Raises ValueError: columns that are no answers, no right one."""
    if len(given.columns) < 2:
        raise ValueError("--columns names the answers of a question: give at least two")
    found = _source(given, given.texts).texts(given.columns, given=given.context)
    for name in (given.right, given.group):
        if name not in (None, *given.columns) and name not in found[0][0].beside:
            raise ValueError(
                f"{given.texts} has no other column {name!r}, but {', '.join(found[0][0].beside)}"
            )
    return found if given.right is None else _with_right(given, found)


def _with_right(
    given: argparse.Namespace, questions: list[tuple[Text, ...]]
) -> list[tuple[Text, ...]]:
    """Questions whose `right` column says which answer is right, from 1. Raises ValueError: it does not say."""
    labels = [str(texts[0].beside.get(given.right, given.right)) for texts in questions]
    numbers = {int(label) for label in labels if label.isdecimal()}
    count = len(given.columns)
    if numbers and not (0 in numbers) ^ (count in numbers):
        raise ValueError(
            f"column {given.right} does not say whether answers are counted from 0 or from 1"
        )
    first = 0 if 0 in numbers else 1
    found = []
    for texts, label in zip(questions, labels, strict=True):
        names = [*given.columns], [text.text for text in texts], [*"ABCDEFGHIJ"[:count]]
        numbered = [str(k) for k in range(first, first + count)]
        places = [each.index(label) + 1 for each in (numbered, *names) if label in each]
        if not places:
            raise ValueError(
                f"line {texts[0].line}: {label!r} in {given.right} is none of the answers"
            )
        found.append(
            tuple(text._replace(beside={**text.beside, "right": places[0]}) for text in texts)
        )
    return found


def _read_variants(given: argparse.Namespace) -> list[tuple[Text, ...]]:
    """Each mutant with the wild type. Raises ValueError: several wild types, a measured value that is none."""
    wild = replace(_source(given, given.texts), format=None).texts()
    if len(wild) > 1:
        raise ValueError(f"{given.texts} holds {len(wild)} texts: give one wild type")
    found = _source(given, given.other).texts(given.columns)
    for [mutant] in found:
        value = mutant.beside.get(given.measured, "") if given.measured else ""
        try:
            float(value or 0)
        except ValueError:
            raise ValueError(
                f"line {mutant.line}: {given.measured} is {value!r}, no number"
            ) from None
    if given.measured and given.measured not in found[0][0].beside:
        columns = ", ".join(found[0][0].beside)
        raise ValueError(f"{given.other} has no other column {given.measured!r}, but {columns}")
    return [(mutant, wild[0][0]) for [mutant] in found]


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
    usual = given.measure.__kwdefaults__
    said = {
        name
        for name in ("sizes", "masks", "passes")
        if f"num_{name}" in usual and getattr(given, f"num_{name}") != usual[f"num_{name}"]
    }
    if given.measure is score_corpus and given.error is None and "passes" in said:
        raise ValueError(
            "--passes bounds what --error takes: give that too, or --sizes and --masks instead"
        )
    if given.error is not None and said & {"sizes", "masks"}:
        raise ValueError("--error takes the place of --sizes and --masks: leave them out")
    if given.windows and not given.single:
        raise ValueError("--windows reads texts for --pseudo-log-likelihood alone: give that too")
    if given.single and (given.curve or given.error is not None or given.num_orders):
        raise ValueError(
            "--pseudo-log-likelihood leaves out areas: leave out --curve, --error and --orders"
        )


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
        there = (
            f"cpu and {torch.cuda.device_count()} of cuda" if torch.cuda.is_available() else "cpu"
        )
        raise ValueError(f"--device {name} is not on this machine, which has {there}") from None


def _load(given: argparse.Namespace, texts: Sequence[Text]) -> MaskedLM:
    """The model of a name or folder. Raises ValueError, whatever is wrong with it."""
    with needs("text"):
        from huggingface_hub.errors import HFValidationError
    if Path(given.model).is_file():
        raise ValueError(
            f"--model {given.model} is a file: "
            "give the folder that holds config.json and the weights"
        )
    try:
        with _quiet_transformers(), warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            lm = MaskedLM.from_pretrained(
                given.model,
                dtype=torch.bfloat16 if given.bfloat16 else None,
                **{
                    name: getattr(given, name)
                    for name in (
                        "device",
                        "revision",
                        "trust_remote_code",
                        "batch_tokens",
                        "allow_unknown",
                        "float32",
                        "mask_token",
                    )
                },
            )
    except (torch.OutOfMemoryError, ModuleNotFoundError):
        raise
    except (
        Exception
    ) as error:  # transformers and what it reads files with raise errors of all kinds
        nowhere = not Path(given.model).is_dir() and isinstance(error, OSError | HFValidationError)
        where = "it is no folder here, and no model of this name was found: " if nowhere else ""
        why = next(iter(str(error).splitlines()), type(error).__name__)
        raise ValueError(f"--model {given.model} cannot be used: {where}{why}") from error
    for message in dict.fromkeys(
        str(each.message) for each in told if each.category is UserWarning
    ):
        _say(message)
    lm.spaced = is_spaced(lm.tokenizer, texts, given.letters)
    tell_rare(lm.tokenizer, texts, _say)
    try:
        return lm.given(given.given) if given.given else lm
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


def _number(kind: type, allowed: Callable[[Any], bool], words: str) -> Callable[[str], Any]:
    """A reader of some numbers, for argparse; words: which."""

    def read(word: str) -> Any:
        number = kind(word)
        if not allowed(number):
            raise argparse.ArgumentTypeError(f"must be {words}, got {word}")
        return number

    read.__name__ = "number"
    return read


def _at_least(least: int) -> Callable[[str], Any]:
    return _number(int, lambda number: number >= least, f"at least {least}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mptlml", description="The area under the masked pre-training curve."
    )
    parser.add_argument("--version", action="version", version=f"mptlml {__version__}")
    commands = parser.add_subparsers(required=True)
    score = commands.add_parser("score", help="score the texts of a file")
    pairs = commands.add_parser("compare", help="say of pairs of texts which is likelier")
    questions = commands.add_parser("choose", help="say which of several answers is likeliest")
    variants = commands.add_parser("variants", help="score mutants of a sequence")
    every = (score, pairs, questions, variants)
    for one in every:
        one.set_defaults(
            other=None,
            curve=None,
            error=None,
            single=False,
            windows=False,
            num_orders=0,
            item=tuple,
            columns=None,
        )
    score.set_defaults(
        measure=score_corpus, read=_read_texts, summary=_summary, item=lambda texts: texts[0]
    )
    pairs.set_defaults(measure=compare_corpus, read=_read_pairs, summary=_summary_of_pairs)
    questions.set_defaults(measure=choose_corpus, read=_read_questions, summary=_summary_of_choices)
    variants.set_defaults(
        measure=variants_corpus, read=_read_variants, summary=_summary_of_variants, truncate=False
    )
    for one in every:
        one.set_defaults(**one.get_default("measure").__kwdefaults__)
    _add_files(score, pairs)
    _add_questions(questions)
    _add_variants(variants)
    _add_measures(score, pairs, questions, variants)
    for one in every:
        _add_reading(one)
        _add_network(one)
    _add_flags(score, pairs, questions, variants)
    return parser


def _add_files(score: argparse.ArgumentParser, pairs: argparse.ArgumentParser) -> None:
    score.add_argument(
        "texts",
        type=Path,
        help="one text per line, a table (.csv, .tsv: with --column), JSON lines (.jsonl: with --column) or "
        "FASTA, in UTF-8, also gzipped; - is the standard input",
    )
    score.add_argument(
        "--column",
        nargs=1,
        dest="columns",
        help="the column or field that holds the texts, by name or by number from 1",
    )
    pairs.add_argument(
        "texts", type=Path, help="the first texts, as for score; or a table of pairs"
    )
    pairs.add_argument(
        "other", type=Path, nargs="?", help="the second texts, in the order of the first"
    )
    pairs.add_argument(
        "--columns",
        nargs=2,
        help="of a table of pairs, or one of each file, by name or by number (default: all, where there are two)",
    )
    score.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        help="where scores go, one line of JSON per text, whose `line` is that of the file of "
        "texts, from 1; their settings go beside it",
    )
    pairs.add_argument(
        "-o", "--output", type=Path, help="where the comparisons go, one line of JSON per pair"
    )
    score.add_argument(
        "--curve", type=Path, help=f"draw the mean curve into this file ({', '.join(PICTURES)})"
    )


def _add_questions(one: argparse.ArgumentParser) -> None:
    one.add_argument("texts", type=Path, help="a table or JSON lines, one question per row")
    one.add_argument(
        "--columns", nargs="+", required=True, help="of the answers, by name or by number"
    )
    one.add_argument(
        "--right",
        help="the right answer: one of the columns, or the column that says its number, letter or text",
    )
    one.add_argument("--group", help="a column by which the right answers are counted")
    one.add_argument(
        "-o", "--output", type=Path, help="where the choices go, one line of JSON per question"
    )


def _add_variants(one: argparse.ArgumentParser) -> None:
    one.add_argument("texts", type=Path, help="the wild type: FASTA, or one line")
    one.add_argument(
        "--mutations",
        type=Path,
        dest="other",
        required=True,
        help="a table or JSON lines of mutants such as E1A:V2G; one per line where it is no table",
    )
    one.add_argument(
        "--column",
        nargs=1,
        dest="columns",
        help="of the mutants (default: where there is one column alone)",
    )
    one.add_argument("--measured", help="a column of measured values, to which scores are compared")
    one.add_argument(
        "--offset",
        type=int,
        help="the number of the wild type's first letter (default %(default)s)",
    )
    one.add_argument(
        "-o", "--output", type=Path, help="where the scores go, one line of JSON per mutant"
    )


def _add_measures(*every: argparse.ArgumentParser) -> None:
    score, pairs, *more = every
    orders = _number(int, lambda number: number == 0 or number > 1, "0 or at least 2")
    for one, name, read, what in (
        (score, "sizes", _at_least(2), "mask sizes per text, at least 2"),
        (score, "masks", _at_least(1), "masks per size, at least 1"),
        (score, "orders", orders, "random orders per text, 0 or at least 2, each a pass per token"),
        (
            score,
            "passes",
            _at_least(65),
            "with --error, most passes for the area of a text, at least 65",
        ),
        (
            pairs,
            "passes",
            _at_least(LEAST_PASSES),
            f"most passes for a pair, at least {LEAST_PASSES}",
        ),
        *(
            (
                one,
                "passes",
                _at_least(LEAST_PASSES),
                f"most passes to compare two, at least {LEAST_PASSES}",
            )
            for one in more
        ),
    ):
        one.add_argument(
            f"--{name}",
            type=read,
            dest=f"num_{name}",
            metavar="N",
            help=f"{what} (default %(default)s)",
        )
    score.add_argument(
        "--error",
        type=_number(float, lambda number: 0 < number < math.inf, "above 0"),
        help="measure each area to about this standard error, in nats per text, in place of "
        "--sizes and --masks",
    )
    for one in (pairs, *more):
        one.add_argument(
            "--level",
            type=_number(float, lambda number: 0 < number < 1, "between 0 and 1"),
            help="when a sign is sure (default %(default)s)",
        )


def _add_reading(one: argparse.ArgumentParser) -> None:
    one.add_argument(
        "--format",
        choices=FORMATS,
        help="how files are read (default: as they are called, or begin)",
    )
    one.add_argument(
        "--letters",
        choices=LETTERS,
        help="whether the tokenizer reads letters together or one by one (default: as it knows sequences, "
        "and other texts as they stand)",
    )
    one.add_argument("--context", help="the column of a text that stands before, as --given does")


def _add_network(one: argparse.ArgumentParser) -> None:
    one.add_argument("--model", required=True, help="name or folder of a masked language model")
    one.add_argument("--seed", type=_at_least(0), help="of the random masks (default %(default)s)")
    one.add_argument(
        "--no-header",
        action="store_false",
        dest="header",
        help="the first line of a table does not name its columns",
    )
    one.add_argument(
        "--given",
        help="a text that stands before each text and is seen, not scored; texts "
        "follow it as they stand, with the space that some tokenizers want",
    )
    one.add_argument("--mask-token", help="its spelling or id, where the tokenizer does not say it")
    one.add_argument("--revision", default="main", help="branch, tag or commit of a model by name")
    one.add_argument(
        "--device",
        default=_usual_device(),
        help="cpu, cuda, cuda:1, ... (default here: %(default)s; GPUs are untried)",
    )
    one.add_argument(
        "--batch-tokens", type=_at_least(1), help="most tokens in a pass: bounds the memory"
    )


def _add_flags(*every: argparse.ArgumentParser) -> None:
    score, pairs, questions, variants = every
    flags: list[tuple[Any, str, str]] = [
        (score, "tokens", "write a score of each token, with its spelling"),
        (score, "pseudo-log-likelihood", "measure this alone, by a pass per token"),
        (
            score,
            "windows",
            "with it, predict a token of a text that is too long from what is around it",
        ),
        (pairs, "area-alone", "leave out the two other scores, two passes per token each"),
        (questions, "pseudo-log-likelihood", "measure this alone, by a pass per token"),
        (variants, "pseudo-log-likelihood", "measure this too, by a pass per token of each mutant"),
        (variants, "areas", "compare the area of each mutant with that of the wild type"),
        *((one, "bfloat16", BFLOAT16) for one in every),
    ]
    for one in every:
        what_exists = one.add_mutually_exclusive_group()
        flags += [
            (what_exists, "resume", "keep what an earlier run wrote, and go on"),
            (what_exists, "overwrite", "replace what an earlier run has written"),
            (one, "skip", "leave out texts that cannot be scored, and say which"),
            *(
                [
                    (
                        one,
                        "truncate",
                        "of a text that is too long, score as many tokens as the model takes",
                    )
                ]
                if one is not variants
                else []
            ),
            (one, "quotes", "quotes enclose cells between tabs, as they do between commas"),
            (one, "float32", "compute in single precision what was saved in half"),
            (one, "trust-remote-code", "run the code that comes with the model"),
            (one, "allow-unknown", "score unknown tokens as any other"),
        ]
    for group, name, what in flags:
        names = {"pseudo-log-likelihood": "single", "area-alone": "others"}
        group.add_argument(
            f"--{name}",
            action="store_false" if name == "area-alone" else "store_true",
            dest=names.get(name, name.replace("-", "_")),
            help=what,
        )


def _summary(given: argparse.Namespace, scores: list[Line]) -> str:
    """What texts score on average, with standard errors over texts, and how alike two scores rank them."""
    named = {
        "area": "area",
        "pseudo_log_likelihood": "pseudo-log-likelihood",
        "order_spread": "spread over orders",
    }
    count, tokens = len(scores), sum(line["tokens"] for line in scores)
    columns = {name: np.array([line.get(name) for line in scores], dtype=float) for name in named}
    known = {name: column for name, column in columns.items() if not np.isnan(column).any()}
    if count > 1:
        lines = [
            f"{count} texts, {tokens} tokens; means with their errors over texts, nats per text:"
        ]
        errors = {name: column.std(ddof=1) / np.sqrt(count) for name, column in known.items()}
    else:
        errors = {"area": scores[0].get("area_error")}
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
        groups.setdefault(f"{given.group} {line[_field(given.group)]}", []).append(line)
    for name, own in groups.items():
        for field, way in ways.items():
            share = np.mean([line[field] == line["right"] for line in own])
            error = math.sqrt(share * (1 - share) / len(own))
            said.append(f"  right {way}, {name} ({len(own)}): {share:.1%} +- {error:.1%}")
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
            values = [line[_field(given.measured)] for line in lines]
            known = [k for k, value in enumerate(values) if value not in (None, "")]
            low, rank, high = rank_interval(
                scores[known], np.array([float(values[k]) for k in known])
            )
            said.append(
                f"    rank correlation with {given.measured} ({len(known)}): {rank:.2f} ({low:.2f} to {high:.2f})"
            )
    return "\n".join(said)


def rank_interval(one: np.ndarray, other: np.ndarray) -> tuple[float, float, float]:
    """Spearman's rank correlation of two samples [n] between the ends of its interval at 95%: (low, rank, high).

    By Fisher's transformation, with the variance (1 + rank^2 / 2) / (n - 3) of Bonett and Wright (2000). NaN
    where a sample is constant, or the interval has fewer than four values.
    """
    if len(one) < 2 or min(np.ptp(one), np.ptp(other)) == 0:
        return math.nan, math.nan, math.nan
    rank = float(stats.spearmanr(one, other).statistic)
    if len(one) < 4 or abs(rank) == 1:
        return math.nan, rank, math.nan
    half = stats.norm.ppf(0.975) * math.sqrt((1 + rank**2 / 2) / (len(one) - 3))
    return math.tanh(math.atanh(rank) - half), rank, math.tanh(math.atanh(rank) + half)


def _field(column: str) -> str:
    """What a column of the file is called in a line of the results."""
    return column + "_" * (column in FIELDS)


def _doubt(line: Line) -> str:
    """What remains possible for a pair whose sign is not sure."""
    if line["sure"]:
        return ""
    if not line["passes"]:
        return ", a tie"
    ends = "" if line["low"] is None else f", {line['low']:.2f} to {line['high']:.2f}"
    return f", not sure{ends}"


def _draw(scores: list[Line], path: Path) -> None:
    """The mean curve of the texts over the masking rate, into a picture file."""
    from matplotlib.figure import Figure

    rates = np.linspace(0.01, 1, 100)
    figure = Figure(figsize=(6, 3.5), layout="constrained")
    axes = figure.subplots()
    axes.plot(100 * rates, mean_curve(scores, rates), color="#0072B2")
    axes.set(xlabel="tokens masked (%)", ylabel="nats per masked token")
    axes.set_title(f"MPT curve, {len(scores)} texts", loc="left", fontsize="medium")
    axes.grid(color="#E2E2E2", linewidth=0.6)
    axes.tick_params(length=0)
    axes.spines[["top", "right"]].set_visible(False)
    kind = path.suffix[1:].lower()
    with replacing(path) as new:  # on the ground of its page, and without a date
        figure.savefig(
            new, format=kind, transparent=True, metadata={"Date": None} if kind == "svg" else None
        )
