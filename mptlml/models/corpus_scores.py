"""Scores of a corpus, text by text, written as they are made: what a killed run has written, the next one keeps.

Texts are scored in units, each by itself: its masks and orders follow from the seed and the numbers of its texts, and
its passes hold no others. So the lines of a unit are the same, bit by bit, whichever process writes them and when.
"""

import hashlib
import json
import math
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from .. import draws
from ..checks import check_count
from ..masks import random_orders
from .masked_lm import MaskedLM
from .text_curves import spaced_sizes

UNIT = 16  # texts


def score_corpus(lm: MaskedLM, texts: Sequence[str], path: Path, *, num_sizes: int = 16, num_masks: int = 4,
                 num_orders: int = 4, seed: int = 0, part: int = 0, parts: int = 1, resume: bool = False) -> Path:
    """Write one line of JSON for each text, in order, and return the path of the file. All scores are in nats per text.

    A line holds `text` (its number, from 0), how it `begins` and its `digest`, `tokens`, `area` with `area_error` (of
    `num_masks` masks per size) and `quadrature_error` (of `num_sizes` sizes in place of all), `pseudo_log_likelihood`,
    `order_spread` over `num_orders` orders (none where 0), and the curve: `sizes` and `scores` in nats per token.

    part of parts: score every `parts`-th unit only, into a file of its own beside `path`; a last call with parts = 1
    and resume=True brings the files together. resume: keep the lines that such files hold. Raises ValueError before
    work starts: a text that cannot be scored, counts out of range, lines of other settings, texts, models or weights.
    """
    lm.sentences(texts)
    for count, name, least in ((num_sizes, "num_sizes", 2), (num_masks, "num_masks", 1), (num_orders, "num_orders", 0),
                               (parts, "parts", 1), (part, "part", 0)):
        check_count(count, name, at_least=least)
    if part >= parts or num_orders == 1:
        raise ValueError(f"part {part} of {parts} must be one of 0..{parts - 1}; num_orders must be 0 or at least 2")
    settings = json.dumps(dict(num_sizes=num_sizes, num_masks=num_masks, num_orders=num_orders, seed=seed,
                               model=lm.model.config.name_or_path, weights=_weights(lm.model), dtype=str(lm.dtype)))
    own = path if parts == 1 else path.with_name(f"{path.stem}.{part + 1}-of-{parts}{path.suffix}")
    units = [range(start, min(start + UNIT, len(texts))) for start in range(0, len(texts), UNIT)][part::parts]
    found: dict[int, str] = {}
    for other in {own, *path.parent.glob(f"{path.stem}.*-of-*{path.suffix}")} if resume else ():
        found |= _lines(other, settings, texts)
    done = {number: found[number] for unit in units if found.keys() >= set(unit) for number in unit}
    _write(own, settings, done)
    with own.open("a", encoding="utf-8") as file, tqdm(total=sum(map(len, units)), desc="texts", disable=None) as bar:
        for unit in units:
            if unit[0] not in done:
                new = _score(lm, texts, unit, num_sizes, num_masks, num_orders, seed)
                file.write("".join(new.values()))
                file.flush()
                done |= new
            bar.update(len(unit))
    _write(own, settings, done)
    return own


def _score(lm: MaskedLM, texts: Sequence[str], unit: Sequence[int], num_sizes: int, num_masks: int, num_orders: int,
           seed: int) -> dict[int, str]:
    """The lines of a unit's texts, by their numbers."""
    some = [texts[number] for number in unit]
    curves = lm.curves(some, partial(spaced_sizes, count=num_sizes), num_masks=num_masks, generator=draws.seeded(seed))
    lines = {}
    for number, text, curve, pseudo in zip(unit, some, curves, lm.pseudo_log_likelihood(some).tolist(), strict=True):
        area, spread = curve.area(), None
        if num_orders:
            orders = random_orders(curve.num_tokens, num_orders, generator=draws.seeded(seed, number))
            spread = float(lm.chain_rule(text, orders).sum(-1).std())
        lines[number] = json.dumps(dict(
            text=number, begins=text[:40], digest=_digest(text), tokens=curve.num_tokens, area=area.mean,
            area_error=None if math.isnan(area.stderr) else area.stderr, quadrature_error=curve.quadrature_error,
            pseudo_log_likelihood=pseudo, order_spread=spread, sizes=curve.sizes.tolist(), scores=curve.mean.tolist(),
        )) + "\n"
    return lines


def _lines(file: Path, settings: str, texts: Sequence[str]) -> dict[int, str]:
    """The whole lines that a file holds, by the numbers of their texts; none where there is no file."""
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True) if file.exists() else []
    if lines and lines[0] != settings + "\n":
        there, here = json.loads(lines[0]), json.loads(settings)
        differ = [key for key in here if there.get(key) != here[key]]
        was, now = (json.dumps({key: of.get(key) for key in differ}) for of in (there, here))
        raise ValueError(f"{file} was written with {was}, not with {now}: choose another file")
    found = {}
    for line in lines[1:]:
        if line.endswith("\n"):  # else it was cut off
            score = json.loads(line)
            number = score["text"]
            if number >= len(texts) or score["digest"] != _digest(texts[number]):
                raise ValueError(f"{file} holds scores of another text number {number}: choose another file")
            found[number] = line
    return found


def _digest(text: str) -> str:
    """Sixteen hexadecimal digits that tell the text from others, which may begin alike, as mutants do."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _weights(model: torch.nn.Module) -> str:
    """Sixteen hexadecimal digits that tell a model's weights from others, as after another training under its name."""
    digest = hashlib.sha256()
    for name, values in model.state_dict().items():
        digest.update(f"{name} {values.dtype} {tuple(values.shape)}".encode())
        digest.update(values.cpu().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()[:16]


def _write(file: Path, settings: str, lines: dict[int, str]) -> None:
    """All at once or not at all."""
    new = file.with_name(file.name + ".new")
    new.write_text("".join([settings + "\n", *(lines[number] for number in sorted(lines))]), encoding="utf-8")
    os.replace(new, file)


def read_scores(path: Path) -> list[dict[str, Any]]:
    """The lines of a file that `score_corpus` wrote, one dictionary for each text."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()[1:]]


def mean_curve(scores: Sequence[dict[str, Any]], rates: np.ndarray) -> np.ndarray:
    """The mean over texts of their curves at masking rates [S] in (0, 1], nats per token [S], by straight lines."""
    each = [np.interp(rates, np.array(line["sizes"]) / line["tokens"], line["scores"]) for line in scores]
    return np.mean(each, 0)
