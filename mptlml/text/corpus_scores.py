"""Scores of a corpus, text by text, written as they are made: what a killed run has written, the next one keeps.

Texts are scored in units, each by itself: its masks and orders follow from the seed and the numbers of its texts, and
its passes hold no others. So the lines of a unit are the same, bit by bit, whichever process writes them and when.
"""

import hashlib
import json
import logging
import math
import os
import re
import time
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from .. import __version__, allocation, draws
from ..checks import check_count
from ..files import replacing
from ..masks import random_orders
from .inputs import Text
from .masked_lm import MaskedLM
from .text_curves import Corpus, spaced_sizes

UNIT = 16  # texts
LOG = logging.getLogger("mptlml")
LOG_SECONDS = 30  # between two lines of progress in the log
KEYS = {"line", "name", "text", "tokens", "area", "area_error", "quadrature_error", "pseudo_log_likelihood",
        "order_spread", "order_sums", "passes", "sizes", "scores", "digest", "settings"}  # of each text
TOKEN_KEYS = {"spellings", "token_scores", "left_to_right"}


def score_corpus(lm: MaskedLM, texts: Sequence[str | Text], path: Path, *, num_sizes: int = 16, num_masks: int = 4,
                 num_orders: int = 4, error: float | None = None, num_passes: int = 10_000, tokens: bool = False,
                 seed: int = 0, part: int = 0, parts: int = 1, resume: bool = False, overwrite: bool = False) -> Path:
    """Write one line of JSON for each text, in order, and return the path of the file. All scores are in nats per text.

    An object holds `line` (of the text's file, from 1; of plain strings, their places from 1), `name` (FASTA's, or
    null), the whole `text`, and `tokens`, their number; `area` with `area_error` (of `num_masks` masks per size, each
    text its own) and `quadrature_error` (of `num_sizes` sizes in place of all); `pseudo_log_likelihood`; `order_sums`,
    the chain rule along `num_orders` random orders, and their standard deviation `order_spread`; the `passes` of the
    area, and the curve: `sizes` and `scores`, nats per token. Two digests tell the text and its token ids, and the
    settings of the run, which `settings_file` holds. tokens: also `spellings`, and nats per token as
    `token_scores` (each given all others) and `left_to_right` (given those before it).

    error: each area is measured to about this standard error, nats, in at most `num_passes` rows, over all sizes
    (`MaskedLM.areas`): then there is no curve, and no error of quadrature. part of parts: score every `parts`-th unit
    only, into a file of its own beside `path`; a last call with parts = 1 and resume=True brings the files together.
    resume: keep the lines that such files hold; overwrite: replace a file that exists. Raises ValueError before work
    starts: a text that cannot be scored, counts out of range, a file that exists where neither is said, lines of other
    settings, texts, tokenizers or weights.
    """
    own = file_of_part(path, part, parts, resume=resume, overwrite=overwrite)
    items = [text if isinstance(text, Text) else Text(place, text) for place, text in enumerate(texts, 1)]
    if not all(one.line < other.line for one, other in pairwise(items)):
        raise ValueError("the lines of texts must increase")
    corpus, wrong = encoded(lm, items)
    if wrong or not items:
        more = f" ({len(wrong) - 1} more of {len(items)} cannot be scored)" if len(wrong) > 1 else ""
        raise ValueError(next(iter(wrong.values())) + more if wrong else "there are no texts to score")
    for count, name, least in ((num_sizes, "num_sizes", 2), (num_masks, "num_masks", 1), (num_orders, "num_orders", 0)):
        check_count(count, name, at_least=least)
    if num_orders == 1:
        raise ValueError("num_orders must be 0 or at least 2, got 1")
    if error is not None:
        allocation.check_passes(num_passes, error, np.array(corpus.lengths))
    settings = dict(num_sizes=num_sizes, num_masks=num_masks, num_orders=num_orders, error=error,
                    num_passes=None if error is None else num_passes, tokens=tokens, seed=seed,
                    weights=weights_digest(lm.exact or lm.model),
                    dtype="int8" if lm.exact else str(lm.dtype), device=lm.device.type,
                    batch_tokens=lm.batch_tokens)
    run = _short(json.dumps(settings))
    heads = [dict(line=item.line, name=item.name, text=item.text, tokens=len(ids), digest=_digest(lm, item.text, ids),
                  settings=run) for item, ids in zip(items, corpus.rows, strict=True)]
    units = [range(start, min(start + UNIT, len(items))) for start in range(0, len(items), UNIT)][part::parts]
    a_part = re.compile(re.escape(path.stem) + r"\.\d+-of-\d+" + re.escape(path.suffix))
    found: dict[int, str] = {}
    for other in {own, *(file for file in path.parent.iterdir() if a_part.fullmatch(file.name))} if resume else ():
        found |= _lines(other, settings, heads)
    done = {place: found[place] for unit in units if found.keys() >= set(unit) for place in unit}
    begun = False
    for unit in with_progress(units, "texts"):
        if unit[0] not in done:
            new = _score(lm, corpus, heads, unit, settings)
            done |= new
            if begun:
                with own.open("a", encoding="utf-8") as file:
                    file.write("".join(new.values()))
            else:  # what an earlier run wrote stays until there is something to take its place
                _write(own, settings, lm, done)
                begun = True
    _write(own, settings, lm, done)
    return own


def with_progress(units: Sequence[Sequence[int]], what: str) -> Iterator[Sequence[int]]:
    """The units one by one: a bar on a terminal tells how far they are, elsewhere a line in the log now and then."""
    total, done, start = sum(map(len, units)), 0, time.monotonic()
    said = start
    with tqdm(total=total, desc=what, disable=None) as bar:
        for unit in units:
            yield unit
            bar.update(len(unit))
            done, now = done + len(unit), time.monotonic()
            if now - said >= LOG_SECONDS:
                left = (now - start) / done * (total - done) / 60
                LOG.info("%d of %d %s, %.0f minutes to go", done, total, what, left)
                said = now


def settings_file(path: Path) -> Path:
    """Where the settings of a file of scores lie: scores.settings.json beside scores.jsonl."""
    return path.with_suffix(".settings.json")


def file_of_part(path: Path, part: int, parts: int, *, resume: bool, overwrite: bool) -> Path:
    """The file that a part writes, beside `path` if there are several. Raises ValueError: see `score_corpus`."""
    if check_count(part, "part", at_least=0) >= check_count(parts, "parts"):
        raise ValueError(f"part must be one of 0..{parts - 1}, got {part}")
    if resume and overwrite:
        raise ValueError("say either resume=True or overwrite=True")
    own = path if parts == 1 else path.with_name(f"{path.stem}.{part + 1}-of-{parts}{path.suffix}")
    for beside in (False, True):
        file = settings_file(own) if beside else own
        if file.is_symlink() or file.exists() and not (file.is_file() and os.access(file, os.W_OK)):
            raise ValueError(f"{file} is no ordinary file that can be written to")
        if file.exists() and not (resume or overwrite):
            raise ValueError(f"{file} exists: go on with it by resume=True, or replace it by overwrite=True")
    return own


def encoded(lm: MaskedLM, items: Sequence[Text]) -> tuple[Corpus, dict[int, str]]:
    """The texts that can be scored as token ids, and what is wrong with the others, by their places in the list.

    The Corpus is of no use where nothing can be scored: there is then a message for each text.
    """
    ids: list[Tensor] = []
    words: list[float] = []
    wrong = {}
    for place, item in enumerate(items):
        try:
            ids.append(lm.encode(item.text))
            words.append(len(item.text.split()))
        except ValueError as error:
            wrong[place] = f"line {item.line}: {error}"
    return Corpus(ids or [torch.zeros(0)], words or [0]), wrong


def _score(lm: MaskedLM, corpus: Corpus, heads: Sequence[dict[str, Any]], unit: Sequence[int],
           settings: dict[str, Any]) -> dict[int, str]:
    """The lines of a unit's texts, by their places."""
    some = Corpus([corpus.rows[place] for place in unit], [corpus.num_words[place] for place in unit])
    own = draws.seeded(settings["seed"], unit[0])
    if settings["error"] is None:
        curves = lm.curves(some, partial(spaced_sizes, count=settings["num_sizes"]), num_masks=settings["num_masks"],
                           generator=own)
        found = [dict(area=area.mean, area_error=None if math.isnan(area.stderr) else area.stderr,
                      quadrature_error=curve.quadrature_error, passes=curve.scores.size, sizes=curve.sizes.tolist(),
                      scores=curve.mean.tolist()) for curve in curves for area in [curve.area()]]
    else:
        areas = lm.areas(some, settings["num_passes"], error=settings["error"], generator=own)
        found = [dict(area=mean, area_error=stderr, quadrature_error=0.0, passes=passes, sizes=[], scores=[])
                 for mean, stderr, _, passes in zip(*(part.tolist() for part in areas), strict=True)]
    single, lines = lm.single_scores(some), {}
    along = lm.single_scores(some, "all") if settings["tokens"] else single
    for place, ids, area, scores, left in zip(unit, some.rows, found, single, along, strict=True):
        more: dict[str, Any] = dict(pseudo_log_likelihood=float(scores.sum()), order_sums=None, order_spread=None)
        if settings["num_orders"]:
            orders = random_orders(len(ids), settings["num_orders"], generator=draws.seeded(settings["seed"], place))
            sums = lm.chain_rule(ids, orders).sum(-1)
            more |= dict(order_sums=sums.tolist(), order_spread=float(sums.std()))
        if settings["tokens"]:
            more |= dict(spellings=lm.tokenizer.convert_ids_to_tokens(ids.tolist()), token_scores=scores.tolist(),
                         left_to_right=left.tolist())
        if not (math.isfinite(area["area"]) and math.isfinite(more["pseudo_log_likelihood"])):
            raise ValueError(f"the model has no finite score for line {heads[place]['line']}")
        lines[place] = json.dumps(heads[place] | area | more) + "\n"
    return lines


def _lines(file: Path, settings: dict[str, Any], heads: Sequence[dict[str, Any]]) -> dict[int, str]:
    """The whole lines that a file holds, by the places of their texts; none where there is no file.

    A model may go by another name, as in another folder: its weights tell it.
    """
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True) if file.exists() else []
    places = {head["line"]: place for place, head in enumerate(heads)}
    keys, found = KEYS | (TOKEN_KEYS if settings["tokens"] else set()), {}
    for number, line in enumerate(lines, 1):
        if number > 1 and not line.endswith("\n"):  # it was cut off
            continue
        try:
            there = json.loads(line)
            if not KEYS <= set(there) <= KEYS | TOKEN_KEYS or type(there["line"]) is not int or not math.isfinite(
                    there["tokens"] + there["area"] + there["quadrature_error"] + there["pseudo_log_likelihood"]):
                raise ValueError
        except (ValueError, TypeError, KeyError, RecursionError):
            raise ValueError(f"line {number} of {file} is not from a file of scores: choose another file") from None
        if there["settings"] != heads[0]["settings"] or set(there) != keys:
            raise ValueError(f"{file} was written with {_difference(file, settings)}: choose another file")
        place = places.get(there["line"])
        if place is None or there["digest"] != heads[place]["digest"]:
            raise ValueError(f"{file} holds scores of another text on line {there['line']}, or by another tokenizer: "
                             "choose another file")
        found[place] = line
    return found


def _difference(file: Path, settings: dict[str, Any]) -> str:
    """In which settings a file of scores differs from these, as far as the file beside it tells."""
    try:
        there = json.loads(settings_file(file).read_text(encoding="utf-8"))
        differ = [key for key in settings if there.get(key) != settings[key]]
        was, now = (json.dumps({key: of.get(key) for key in differ}) for of in (there, settings))
        return f"{was}, not with {now}" if differ else "other settings"
    except (OSError, ValueError, AttributeError):
        return "other settings"


def _digest(lm: MaskedLM, text: str, ids: Tensor) -> str:
    """Sixteen hexadecimal digits that tell the text and what the network reads of it from others, as of a mutant."""
    read = [*lm.prefix, *ids.tolist(), *lm.suffix, lm.tokenizer.mask_token_id]
    return _short(json.dumps([text, read]))


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def weights_digest(model: Any) -> str:
    """Sixteen hexadecimal digits that tell a model's weights and configuration from others, whatever its name."""
    settings = {key: value for key, value in model.config.to_diff_dict().items()
                if key not in ("_name_or_path", "transformers_version")}
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode())
    for name, values in model.state_dict().items():
        digest.update(f"{name} {values.dtype} {tuple(values.shape)}".encode())
        digest.update(values.cpu().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()[:16]


def _write(file: Path, settings: dict[str, Any], lm: MaskedLM, lines: dict[int, str]) -> None:
    """The file, and its settings beside it. A line names its settings, should it be killed between the two."""
    about = dict(model=lm.model.config.name_or_path, version=__version__) | settings
    whole = "".join(lines[place] for place in sorted(lines))
    for path, text in ((settings_file(file), json.dumps(about, indent=1) + "\n"), (file, whole)):
        with replacing(path) as new:
            new.write_text(text, encoding="utf-8")


def read_scores(path: Path) -> list[dict[str, Any]]:
    """What a file that `score_corpus` writes holds of each text; not of one that is being written."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


def mean_curve(scores: Sequence[dict[str, Any]], rates: np.ndarray) -> np.ndarray:
    """The mean over texts of their curves at masking rates [S] in (0, 1], nats per token [S], by straight lines."""
    each = [np.interp(rates, np.array(line["sizes"]) / line["tokens"], line["scores"]) for line in scores]
    return np.mean(each, 0)
