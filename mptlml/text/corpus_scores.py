"""Scores of a corpus, text by text, and comparisons of many pairs: one line of JSON each (`results`)."""

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from .. import __version__, allocation, draws
from ..checks import check_count
from ..masks import random_orders
from .inputs import LeftOut, Text, check_list
from .masked_lm import MaskedLM, check_finite
from .pairs import compare
from .results import Line, Output, short_digest, write_results
from .text_curves import Corpus, TextCurve, spaced_sizes

# What a line of results says by itself.
FIELDS = frozenset(
    "line name text first second given tokens cut_tokens area area_error quadrature_error passes error_reached "
    "pseudo_log_likelihood order_sums order_spread sizes scores spellings token_scores left_to_right digest "
    "windows settings difference error low high sure other_passes".split()
)


class Item(NamedTuple):
    """Texts that are measured together, one or a pair: their token ids, and how many tokens were cut off.

    lm: the model, with what is given before these texts.
    """

    texts: tuple[Text, ...]
    ids: list[Tensor]
    cut_tokens: int
    lm: MaskedLM


def score_corpus(
    lm: MaskedLM,
    texts: Sequence[str | Text],
    output: Output,
    *,
    num_sizes: int = 16,
    num_masks: int = 4,
    num_orders: int = 0,
    error: float | None = None,
    num_passes: int = 10_000,
    tokens: bool = False,
    single: bool = False,
    truncate: bool = False,
    windows: bool = False,
    seed: int = 0,
    left_out: LeftOut | None = None,
    about: Mapping[str, Any] | None = None,
) -> Path:
    """Write one line for each text, in order, and return the path of the file. Scores are in nats per text.

    A line holds what the page *Score your own network* lists: `area_error` is of `num_masks` masks per size,
    each text its own, and 0 where all masks were asked, as of texts of up to six tokens; `quadrature_error`
    is of `num_sizes` sizes in place of all. Lines of strings are their places from 1. tokens: score each too.

    error: each area is measured to about this standard error, nats, in at most `num_passes` rows, over all
    sizes (`MaskedLM.areas`); `error_reached` says whether that was enough. Then there is no curve, and no
    error of quadrature. truncate: of a text that is too long, score as many tokens as the model takes.
    single: the pseudo-log-likelihood alone; windows: then each token of a text that is too long is predicted
    from as many around it as the model takes. left_out: is told of texts that cannot be scored. about: what
    else the file of settings says. Raises ValueError before work starts: such a text where there is no
    `left_out`, counts out of range, and what `write_results` refuses; while it works, a text that has no
    finite score.
    """
    check_list(texts)
    items = [
        text if isinstance(text, Text) else Text(place, text) for place, text in enumerate(texts, 1)
    ]
    if windows and (truncate or tokens or not single):
        raise ValueError(
            "windows=True reads single=True alone, without truncate=True or tokens=True"
        )
    found = _readable(lm, [(item,) for item in items], truncate, left_out, windows)
    check_count(num_sizes, "num_sizes", at_least=2)
    check_count(num_masks, "num_masks")
    if check_count(num_orders, "num_orders", at_least=0) == 1:
        raise ValueError("num_orders must be 0 or at least 2, got 1")
    if error is not None:
        least = max(allocation.least_passes(len(item.ids[0])) for item in found)
        allocation.check_passes(num_passes, error, least)
    heads = [
        dict(name=text.name, text=text.text, tokens=len(item.ids[0])) | _head(item)
        for item in found
        for text in item.texts
    ]
    return _write(
        lm,
        output,
        found,
        heads,
        _score,
        "texts",
        left_out,
        about,
        num_sizes=num_sizes,
        num_masks=num_masks,
        num_orders=num_orders,
        error=error,
        num_passes=None if error is None else num_passes,
        tokens=tokens,
        single=single,
        seed=seed,
    )


def compare_corpus(
    lm: MaskedLM,
    pairs: Sequence[tuple[Text, Text]],
    output: Output,
    *,
    num_passes: int = 10_000,
    level: float = 0.95,
    others: bool = True,
    truncate: bool = False,
    seed: int = 0,
    left_out: LeftOut | None = None,
    about: Mapping[str, Any] | None = None,
) -> Path:
    """Write one line for each pair, in order: the numbers of `pairs.Comparison`; return the file's path.

    A line holds `line` (of the first text), `first` and `second`, the texts, `cut_tokens` of both together,
    and the digests of `score_corpus`, whose options these are. An infinite end of an interval is null.
    """
    found = _readable(lm, pairs, truncate, left_out)
    heads = [
        dict(name=one.name, first=one.text, second=other.text) | _head(item)
        for item in found
        for one, other in [item.texts]
    ]
    settings = dict(num_passes=num_passes, level=level, others=others, seed=seed)
    return _write(lm, output, found, heads, _compare, "pairs", left_out, about, **settings)


def _head(item: Item) -> Line:
    """What tells an item from others: its line, what was given and cut, and the other columns of its row.

    A column that is called as a field of the results has _ behind its name.
    """
    first = item.texts[0]
    own = dict(line=first.line, cut_tokens=item.cut_tokens)
    given = dict(given=first.given) if first.given else {}
    return own | given | {key + "_" * (key in FIELDS): value for key, value in first.beside.items()}


def _readable(
    lm: MaskedLM,
    items: Sequence[tuple[Text, ...]],
    truncate: bool,
    left_out: LeftOut | None,
    windows: bool = False,
) -> list[Item]:
    """The texts or pairs that can be scored, as token ids. ValueError: one that cannot, or none is left."""
    found, wrong, known = [], [], {"": lm}
    for texts in items:
        ids: list[Tensor] = []
        try:
            before = texts[0].given
            if before not in known:
                known[before] = lm.given(before)
            own = known[before]
            for text in texts:
                ids.append(own.encode(text.text, truncate=truncate, windows=windows))
        except ValueError as error:
            side = ("", ", first text", ", second text")[len(texts) - 1 and len(ids) + 1]
            wrong.append(f"line {texts[0].line}{side}: {error}")
            continue
        cut = (
            sum(len(own.tokenise(text.text)) for text in texts) - sum(map(len, ids))
            if truncate
            else 0
        )
        found.append(Item(texts, ids, cut, own))
    for message in wrong:
        if left_out is None:
            raise ValueError(f"{message} (of {len(items)}, {len(wrong)} cannot be scored)")
        left_out(message)
    if not found:
        raise ValueError(
            "no text is left that can be scored" if items else "there are no texts to score"
        )
    return found


def _score(
    lm: MaskedLM,
    items: Sequence[Item],
    unit: Sequence[int],
    *,
    num_sizes: int,
    num_masks: int,
    num_orders: int,
    error: float | None,
    num_passes: int | None,
    tokens: bool,
    single: bool,
    seed: int,
) -> list[Line]:
    """What is measured of the texts of a unit."""
    some, own = Corpus([items[place].ids[0] for place in unit]), draws.seeded(seed, unit[0])
    if single:
        lines: list[Line] = [
            dict(windows=max(1, len(ids) - lm.max_tokens + 1)) for ids in some.rows
        ]
    elif error is None or num_passes is None:
        curves = lm.curves(
            some, partial(spaced_sizes, count=num_sizes), num_masks=num_masks, generator=own
        )
        lines = [_of_curve(lm, ids, curve) for ids, curve in zip(some.rows, curves, strict=True)]
    else:
        areas = lm.areas(some, num_passes, error=error, generator=own)
        lines = [
            dict(
                area=mean,
                area_error=stderr,
                quadrature_error=0.0,
                passes=passes,
                error_reached=reached,
                sizes=[],
                scores=[],
            )
            for mean, stderr, _, passes, reached in zip(*map(Tensor.tolist, areas), strict=True)
        ]
    each = lm.single_scores(some)
    lefts = lm.single_scores(some, "all") if tokens else each
    check_finite(torch.cat(each))
    for place, ids, line, scores, left in zip(unit, some.rows, lines, each, lefts, strict=True):
        line |= dict(pseudo_log_likelihood=float(scores.sum()))
        if num_orders:
            orders = random_orders(len(ids), num_orders, generator=draws.seeded(seed, place))
            sums = lm.chain_rule(ids, orders).sum(-1)
            line |= dict(order_sums=sums.tolist(), order_spread=float(sums.std()))
        elif not single:
            line |= dict(order_sums=None, order_spread=None)
        if tokens:
            line |= dict(
                spellings=lm.tokenizer.convert_ids_to_tokens(ids.tolist()),
                token_scores=scores.tolist(),
                left_to_right=left.tolist(),
            )
    return lines


def _of_curve(lm: MaskedLM, ids: Tensor, curve: TextCurve) -> Line:
    """The area of a text, from its curve; a short one is asked under all of its masks."""
    short = len(ids) <= max(allocation.SHORT, math.log2(curve.scores.size + 1))
    best = lm.exact_curve(ids) if short else curve
    check_finite(torch.from_numpy(best.mean))
    area, unknown = best.area(), curve.quadrature_error
    return dict(
        area=area.mean,
        area_error=None if math.isnan(area.stderr) else area.stderr,
        quadrature_error=0.0 if short else None if math.isnan(unknown) else unknown,
        passes=2 ** len(ids) - 1 if short else curve.scores.size,
        error_reached=None,
        sizes=best.sizes.tolist(),
        scores=best.mean.tolist(),
    )


def _compare(
    lm: MaskedLM,
    items: Sequence[Item],
    unit: Sequence[int],
    *,
    num_passes: int,
    level: float,
    others: bool,
    seed: int,
) -> list[Line]:
    """What is measured of the pairs of a unit."""
    some, own = (
        Corpus([ids for place in unit for ids in items[place].ids]),
        draws.seeded(seed, unit[0]),
    )
    return [
        {key: value if math.isfinite(value) else None for key, value in pair._asdict().items()}
        for pair in compare(
            lm, some, num_passes=num_passes, level=level, others=others, generator=own
        )
    ]


def _write(
    lm: MaskedLM,
    output: Output,
    items: Sequence[Item],
    heads: list[Line],
    measure: Callable[..., list[Line]],
    what: str,
    left_out: LeftOut | None,
    about: Mapping[str, Any] | None,
    **settings: Any,
) -> Path:
    """Write what is measured. A digest tells the texts, their place and what the network reads of them."""
    for place, (item, head) in enumerate(zip(items, heads, strict=True)):
        frame = [item.lm.prefix, item.lm.suffix, lm.mask_id]
        read = place, [text.text for text in item.texts], [ids.tolist() for ids in item.ids], frame
        head["digest"] = short_digest(json.dumps(read))
    ready = partial(_by_model, partial(measure, **settings), items)
    settings |= dict(
        weights=weights_digest(lm.model),
        dtype=str(lm.dtype or lm.model.dtype),
        device=lm.device.type,
        around=[lm.tokenizer.decode(ids) for ids in (lm.prefix, lm.suffix)],
        batch_tokens=lm.batch_tokens,
        version=__version__,
    )
    named = dict(model=lm.model.config.name_or_path, cut=sum(item.cut_tokens > 0 for item in items))
    return write_results(
        output,
        heads,
        ready,
        settings=settings,
        about={**named, **(about or {})},
        what=what,
        left_out=left_out,
    )


def _by_model(
    measure: Callable[..., list[Line]], items: Sequence[Item], unit: Sequence[int]
) -> list[Line]:
    """What is measured of the items of a unit, of those together that the same texts are given to."""
    groups: dict[int, list[int]] = {}
    for place in unit:
        groups.setdefault(id(items[place].lm), []).append(place)
    found: dict[int, Line] = {}
    for places in groups.values():
        lines = measure(items[places[0]].lm, items, places)
        found |= zip(places, lines, strict=True)
    return [found[place] for place in unit]


def weights_digest(model: Any) -> str:
    """Sixteen hexadecimal digits that tell a model's weights and configuration, whatever its name."""
    settings = {
        key: value
        for key, value in model.config.to_diff_dict().items()
        if key not in ("_name_or_path", "transformers_version")
    }
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode())
    for name, values in model.state_dict().items():
        digest.update(f"{name} {values.dtype} {tuple(values.shape)}".encode())
        digest.update(values.cpu().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()[:16]


def mean_curve(scores: Sequence[Line], rates: np.ndarray) -> np.ndarray:
    """The mean over texts of their curves at masking rates [S] in (0, 1], nats per token [S]."""
    each = [
        np.interp(rates, np.array(line["sizes"]) / line["tokens"], line["scores"])
        for line in scores
    ]
    return np.mean(each, 0)
