"""Scores of a corpus, text by text, written as they are made: what a killed run has written, the next one keeps.

Texts are scored in units, each by itself: its masks and orders follow from the seed and the numbers of its texts, and
its passes hold no others. So the lines of a unit are the same, bit by bit, whichever process writes them and when.
"""

import hashlib
import json
import math
import os
import re
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from .. import allocation, draws
from ..checks import check_count
from ..files import replacing
from ..masks import random_orders
from .masked_lm import MaskedLM
from .text_curves import Corpus, spaced_sizes

UNIT = 16  # texts
KEYS = {"text", "begins", "digest", "tokens", "area", "area_error", "quadrature_error", "pseudo_log_likelihood",
        "order_spread", "passes", "sizes", "scores"}  # of a line


def score_corpus(lm: MaskedLM, texts: Sequence[str], path: Path, *, numbers: Sequence[int] | None = None,
                 num_sizes: int = 16, num_masks: int = 4, num_orders: int = 4, error: float | None = None,
                 num_passes: int = 10_000, seed: int = 0, part: int = 0, parts: int = 1, resume: bool = False,
                 overwrite: bool = False) -> Path:
    """Write one line of JSON for each text, in order, and return the path of the file. All scores are in nats per text.

    A line holds `text` (its number: that in `numbers`, which increase, or its place from 0), how it `begins`, a
    `digest` of it and its token ids, `tokens`, `area` with `area_error` (of `num_masks` masks per size, each text its
    own) and `quadrature_error` (of `num_sizes` sizes in place of all), `pseudo_log_likelihood`, `order_spread` over
    `num_orders` orders (none where 0), the `passes` of the area, and the curve: `sizes` and `scores` in nats per token.
    The first line of the file holds the settings. error: each area is measured to about this standard error, nats, in
    at most `num_passes` rows, over all sizes (`MaskedLM.areas`): then there is no curve, and no error of quadrature.

    part of parts: score every `parts`-th unit only, into a file of its own beside `path`; a last call with parts = 1
    and resume=True brings the files together. resume: keep the lines that such files hold; overwrite: replace a file
    that exists. Raises ValueError before work starts: a text that cannot be scored, counts out of range, a file that
    exists where neither is said, lines of other settings, texts, tokenizers or weights.
    """
    own = file_of_part(path, part, parts, resume=resume, overwrite=overwrite)
    corpus = _encoded(lm, texts, numbers)
    numbers = range(len(texts)) if numbers is None else numbers
    for count, name, least in ((num_sizes, "num_sizes", 2), (num_masks, "num_masks", 1), (num_orders, "num_orders", 0)):
        check_count(count, name, at_least=least)
    if num_orders == 1:
        raise ValueError("num_orders must be 0 or at least 2, got 1")
    if error is not None:
        allocation.check_passes(num_passes, error, np.array(corpus.lengths))
    settings = dict(num_sizes=num_sizes, num_masks=num_masks, num_orders=num_orders, error=error,
                    num_passes=None if error is None else num_passes, seed=seed,
                    model=lm.model.config.name_or_path, weights=weights_digest(lm.model), dtype=str(lm.dtype),
                    device=lm.device.type, batch_tokens=lm.batch_tokens)
    heads = [dict(text=number, begins=text[:40], digest=_digest(lm, text, own_ids))
             for number, text, own_ids in zip(numbers, texts, corpus.rows, strict=True)]
    units = [range(start, min(start + UNIT, len(texts))) for start in range(0, len(texts), UNIT)][part::parts]
    a_part = re.compile(re.escape(path.stem) + r"\.\d+-of-\d+" + re.escape(path.suffix))
    found: dict[int, str] = {}
    for other in {own, *(file for file in path.parent.iterdir() if a_part.fullmatch(file.name))} if resume else ():
        found |= _lines(other, settings, heads)
    done = {place: found[place] for unit in units if found.keys() >= set(unit) for place in unit}
    begun = False
    with tqdm(total=sum(map(len, units)), desc="texts", disable=None) as bar:
        for unit in units:
            if unit[0] not in done:
                new = _score(lm, corpus, heads, unit, settings)
                done |= new
                if begun:
                    with own.open("a", encoding="utf-8") as file:
                        file.write("".join(new.values()))
                else:  # what an earlier run wrote stays until there is something to take its place
                    _write(own, settings, done)
                    begun = True
            bar.update(len(unit))
    _write(own, settings, done)
    return own


def file_of_part(path: Path, part: int, parts: int, *, resume: bool, overwrite: bool) -> Path:
    """The file that a part writes, beside `path` if there are several. Raises ValueError: see `score_corpus`."""
    if check_count(part, "part", at_least=0) >= check_count(parts, "parts"):
        raise ValueError(f"part must be one of 0..{parts - 1}, got {part}")
    if resume and overwrite:
        raise ValueError("say either resume=True or overwrite=True")
    own = path if parts == 1 else path.with_name(f"{path.stem}.{part + 1}-of-{parts}{path.suffix}")
    if own.is_symlink() or own.exists() and not (own.is_file() and os.access(own, os.W_OK)):
        raise ValueError(f"{own} is no ordinary file that can be written to")
    if own.exists() and not (resume or overwrite):
        raise ValueError(f"{own} exists: go on with it by resume=True, or replace it by overwrite=True")
    return own


def _encoded(lm: MaskedLM, texts: Sequence[str], numbers: Sequence[int] | None) -> Corpus:
    """The texts as token ids. Raises ValueError: it names the first text that cannot be scored, and counts them."""
    if numbers is None:
        name, numbers = "text", range(len(texts))
    else:
        name = "line"
        if len(numbers) != len(texts) or not all(one < other for one, other in pairwise(numbers)):
            raise ValueError(f"numbers must increase, one for each of {len(texts)} texts, got {len(numbers)}")
    ids, wrong = [], []
    for number, text in zip(numbers, texts, strict=True):
        try:
            ids.append(lm.encode(text))
        except ValueError as error:
            wrong.append(f"{name} {number}: {error}")
    if wrong or not texts:
        more = f" ({len(wrong) - 1} more of {len(texts)} cannot be scored)" if len(wrong) > 1 else ""
        raise ValueError(wrong[0] + more if wrong else "there are no texts to score")
    return Corpus(ids, [len(text.split()) for text in texts])


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
    lines = {}
    for place, ids, area, pseudo in zip(unit, some.rows, found, lm.pseudo_log_likelihood(some).tolist(), strict=True):
        spread = None
        if settings["num_orders"]:
            orders = random_orders(len(ids), settings["num_orders"], generator=draws.seeded(settings["seed"], place))
            spread = float(lm.chain_rule(ids, orders).sum(-1).std())
        if not (math.isfinite(area["area"]) and math.isfinite(pseudo)):
            raise ValueError(f"the model has no finite score for text number {heads[place]['text']}")
        lines[place] = json.dumps(heads[place] | dict(
            tokens=len(ids), **area, pseudo_log_likelihood=pseudo, order_spread=spread)) + "\n"
    return lines


def _lines(file: Path, settings: dict[str, Any], heads: Sequence[dict[str, Any]]) -> dict[int, str]:
    """The whole lines that a file holds, by the places of their texts; none where there is no file.

    A model may go by another name, as in another folder: its weights tell it.
    """
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True) if file.exists() else []
    places = {head["text"]: place for place, head in enumerate(heads)}
    found = {}
    for number, line in enumerate(lines, 1):
        if number > 1 and not line.endswith("\n"):  # it was cut off
            continue
        try:
            there = json.loads(line)
            known = there["weights" if number == 1 else "digest"]
            if number > 1 and (set(there) != KEYS or type(there["text"]) is not int or not math.isfinite(
                    there["tokens"] + there["area"] + there["quadrature_error"] + there["pseudo_log_likelihood"])):
                raise ValueError
            place = places.get(there.get("text"))
        except (ValueError, TypeError, KeyError, RecursionError):
            raise ValueError(f"line {number} of {file} is not from a file of scores: choose another file") from None
        if number == 1:
            differ = [key for key in settings if key != "model" and there.get(key) != settings[key]]
            if differ:
                was, now = (json.dumps({key: of.get(key) for key in differ}) for of in (there, settings))
                raise ValueError(f"{file} was written with {was}, not with {now}: choose another file")
        else:
            if place is None or known != heads[place]["digest"]:
                raise ValueError(f"{file} holds scores of another text number {there.get('text')}, or by another "
                                 "tokenizer: choose another file")
            found[place] = line
    return found


def _digest(lm: MaskedLM, text: str, ids: Tensor) -> str:
    """Sixteen hexadecimal digits that tell the text and what the network reads of it from others, as of a mutant."""
    read = [*lm.prefix, *ids.tolist(), *lm.suffix, lm.tokenizer.mask_token_id]
    return hashlib.sha256(json.dumps([text, read]).encode()).hexdigest()[:16]


def weights_digest(model: Any) -> str:
    """Sixteen hexadecimal digits that tell a model's weights and configuration from others, whatever its name."""
    settings = {key: value for key, value in model.config.to_diff_dict().items()
                if key not in ("_name_or_path", "transformers_version")}
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode())
    for name, values in model.state_dict().items():
        digest.update(f"{name} {values.dtype} {tuple(values.shape)}".encode())
        digest.update(values.cpu().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()[:16]


def _write(file: Path, settings: dict[str, Any], lines: dict[int, str]) -> None:
    text = "".join([json.dumps(settings) + "\n", *(lines[place] for place in sorted(lines))])
    with replacing(file) as new:
        new.write_text(text, encoding="utf-8")


def read_scores(path: Path) -> list[dict[str, Any]]:
    """The lines of a file that `score_corpus` wrote, one dictionary for each text; not one that is being written."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)[1:]
    return [json.loads(line) for line in lines if line.endswith("\n")]


def mean_curve(scores: Sequence[dict[str, Any]], rates: np.ndarray) -> np.ndarray:
    """The mean over texts of their curves at masking rates [S] in (0, 1], nats per token [S], by straight lines."""
    each = [np.interp(rates, np.array(line["sizes"]) / line["tokens"], line["scores"]) for line in scores]
    return np.mean(each, 0)
