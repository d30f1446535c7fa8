"""Scores of a corpus, text by text, and comparisons of many pairs: one line of JSON each (`results`)."""

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Generator, Tensor

from .. import __version__, draws
from ..checks import check_count, check_list
from ..curve import RowEstimates, ScoreCurve, straight_lines
from ..masked_lm import MaskedLM, spaced_sizes
from ..masks import random_orders
from ..score import estimate_area, until_error
from .inputs import LeftOut, Text
from .pairs import EXACT, check_scores, choose, compare
from .results import Line, Output, short_digest, write_results
from .sequences import mutated
from .texts import encode, given, left_to_right

SHORT = 63  # masks, those of six tokens: so many are asked rather than a curve
# What a line of results says by itself.
FIELDS = frozenset(
    "line name text first second given tokens cut_tokens area area_error quadrature_error passes error_reached "
    "pseudo_log_likelihood order_sums order_spread sizes scores spellings token_scores left_to_right digest "
    "windows settings difference error low high sure other_passes "
    "answers right chosen decided pseudo_log_likelihoods likeliest_singly mutant masked_marginal".split()
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

    A line holds what the page *Score your own network* lists: `area_error` is of `num_masks` masks
    per size, each text its own, and 0 where all masks were asked, as of texts of up to six tokens;
    `quadrature_error` is of `num_sizes` sizes in place of all. Lines of strings are their places
    from 1. tokens: score each too.

    error: each area is measured to about this standard error, nats, in at most `num_passes` rows,
    over all sizes (`areas`); `error_reached` says whether that was enough. Then there is no curve,
    and no error of quadrature. truncate: of a text that is too long, score as many tokens
    as the model takes. single: the pseudo-log-likelihood alone; windows: then each token of a text
    that is too long is predicted from as many around it as the model takes. left_out: is told of
    texts that cannot be scored. about: what else the file of settings says. Raises ValueError
    before work starts: such a text where there is no `left_out`, counts out of range, and what
    `write_results` refuses; while it works, a text that has no finite score.
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
        check_count(num_passes, "num_passes", at_least=EXACT)
        if not 0 < error < math.inf:
            raise ValueError(f"error must be a number of nats above 0, got {error!r}")
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
        _score_lines,
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

    A line holds `line` (of the first text), `first` and `second`, the texts, `cut_tokens` of both
    together, and the digests of `score_corpus`, whose options these are. An infinite end of an
    interval is null.
    """
    found = _readable(lm, pairs, truncate, left_out)
    heads = [
        dict(name=one.name, first=one.text, second=other.text) | _head(item)
        for item in found
        for one, other in [item.texts]
    ]
    settings = dict(num_passes=num_passes, level=level, others=others, seed=seed)
    return _write(lm, output, found, heads, _pair_lines, "pairs", left_out, about, **settings)


def choose_corpus(
    lm: MaskedLM,
    questions: Sequence[tuple[Text, ...]],
    output: Output,
    *,
    num_passes: int = 10_000,
    level: float = 0.95,
    single: bool = False,
    truncate: bool = False,
    seed: int = 0,
    left_out: LeftOut | None = None,
    about: Mapping[str, Any] | None = None,
) -> Path:
    """Write one line for each question, in order: which of its answers is likeliest; return the file's path.

    A line holds `answers`, their `pseudo_log_likelihoods`, nats, and the likeliest by these,
    `likeliest_singly`, by its place from 1, None where another answer is the same to the tokenizer;
    unless `single`, also `chosen` by area, `decided` and `passes` of `pairs.choose`. Options are
    those of `compare_corpus`.
    """
    found = _readable(lm, questions, truncate, left_out)
    heads = [dict(answers=[text.text for text in item.texts]) | _head(item) for item in found]
    settings = dict(num_passes=num_passes, level=level, single=single, seed=seed)
    return _write(lm, output, found, heads, _choice_lines, "questions", left_out, about, **settings)


def variants_corpus(
    lm: MaskedLM,
    variants: Sequence[tuple[Text, Text]],
    output: Output,
    *,
    offset: int = 1,
    single: bool = False,
    areas: bool = False,
    num_passes: int = 10_000,
    level: float = 0.95,
    seed: int = 0,
    left_out: LeftOut | None = None,
    about: Mapping[str, Any] | None = None,
) -> Path:
    """Write one line for each mutant of a wild type, minus the wild type, nats; return the file's path.

    variants: pairs of the mutant, such as E1A:V2G, and the wild type, the same in all. A line holds
    `mutant` and its `masked_marginal`, the sum over its substitutions of what D passes say of all
    mutants (Meier et al. 2021). single: its `pseudo_log_likelihood` too, D passes each; areas: what
    `compare` says, too. offset: as `sequences.mutated`. Raises ValueError: a tokenizer that does
    not take a letter for a token, what `sequences.mutated` refuses, and as `compare_corpus`.
    """
    [wild, *others] = {wild.text: wild for _, wild in variants}.values()
    letters = "".join(wild.text.split())
    ids = encode(lm, letters, windows=True)
    if others or len(ids) != len(letters):
        raise ValueError(
            f"{len(letters)} letters are {len(ids)} tokens: variants need one wild type, a token per letter"
        )
    if areas and len(ids) > lm.max_tokens:
        raise ValueError(
            f"{len(ids)} tokens are more than the {lm.max_tokens} of areas: leave these out"
        )
    found, wrong = [], []
    for mutant, _ in variants:
        try:
            text = mutated(letters, mutant.text, offset)
            own = encode(lm, text, windows=True)
            if len(own) != len(ids):
                raise ValueError(
                    f"{mutant.text}: the tokenizer reads a letter as other than one token"
                )
            found.append(Item((mutant, wild._replace(text=text)), [own, ids], 0, lm))
        except ValueError as error:
            wrong.append(f"line {mutant.line}: {error}")
    _tell(wrong, len(variants), len(found), left_out)
    heads = [dict(name=wild.name, mutant=item.texts[0].text) | _head(item) for item in found]
    measure = partial(_variant_lines, cache(lambda: lm.masked_marginals(ids)))
    settings = dict(single=single, areas=areas, num_passes=num_passes, level=level, seed=seed)
    return _write(lm, output, found, heads, measure, "variants", left_out, about, **settings)


def _head(item: Item) -> Line:
    """What tells an item from others: its line, what was given and cut, and the other columns of its row."""
    first = item.texts[0]
    own = dict(line=first.line, cut_tokens=item.cut_tokens)
    given = dict(given=first.given) if first.given else {}
    right = dict(right=first.right) if first.right else {}
    return own | given | right | {field(name): value for name, value in first.beside.items()}


def field(column: str) -> str:
    """What a column is called in a line of results: with one _ more, where without them it is one of FIELDS."""
    return column + "_" * (column.rstrip("_") in FIELDS)


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
                known[before] = given(lm, before)
            own = known[before]
            for text in texts:
                ids.append(encode(own, text.text, truncate=truncate, windows=windows))
        except ValueError as error:
            sides = ("first", "second", "third", *(f"{k}th" for k in range(4, len(texts) + 1)))
            side = f", {sides[len(ids)]} text" if len(texts) > 1 else ""
            wrong.append(f"line {texts[0].line}{side}: {error}")
            continue
        cut = (
            sum(len(own.tokenise(text.text)) for text in texts) - sum(map(len, ids))
            if truncate
            else 0
        )
        found.append(Item(texts, ids, cut, own))
    _tell(wrong, len(items), len(found), left_out)
    return found


def _tell(wrong: Sequence[str], count: int, left: int, left_out: LeftOut | None) -> None:
    """Tell what cannot be scored of so many texts. Raises ValueError: nobody is to be told, or none is left."""
    for message in wrong:
        if left_out is None:
            raise ValueError(f"{message} (of {count}, {len(wrong)} cannot be scored)")
        left_out(message)
    if not left:
        raise ValueError(
            "no text is left that can be scored" if count else "there are no texts to score"
        )


def _score_lines(
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
    some, own = lm.read([items[place].ids[0] for place in unit]), draws.seeded(seed, unit[0])
    if single:
        lines: list[Line] = [
            dict(windows=max(1, len(ids) - lm.max_tokens + 1)) for ids in some.rows
        ]
    else:
        lines = _area_lines(lm, some.rows, num_sizes, num_masks, error, num_passes, own)
    each = lm.single_scores(some)
    lefts = [left_to_right(lm, ids) for ids in some.rows] if tokens else each
    check_scores(torch.cat(each))
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


def _area_lines(
    lm: MaskedLM,
    rows: Sequence[Tensor],
    num_sizes: int,
    num_masks: int,
    error: float | None,
    num_passes: int | None,
    generator: Generator,
) -> list[Line]:
    """The areas of texts, from their curves or to an error; short ones are asked under all of their masks."""
    sizes = partial(spaced_sizes, count=num_sizes)
    passes = [num_masks * len(sizes(len(ids))) if error is None else EXACT for ids in rows]
    few = [2 ** len(ids) - 1 <= max(SHORT, most) for ids, most in zip(rows, passes, strict=True)]
    long = [ids for ids, exact in zip(rows, few, strict=True) if not exact]
    if not long:
        found: list[Line] = []
    elif error is not None and num_passes is not None:
        found = _estimates(lm, long, num_passes, error, generator)
    else:
        curves = lm.curves(long, sizes, num_masks=num_masks, generator=generator)
        found = [_of_curve(curve, num_masks * len(curve.sizes), None) for curve in curves]
    rest, reached = iter(found), None if error is None else True
    return [
        _of_curve(lm.exact_curve(ids), 2 ** len(ids) - 1, reached) if exact else next(rest)
        for ids, exact in zip(rows, few, strict=True)
    ]


def _of_curve(curve: ScoreCurve, passes: int, reached: bool | None) -> Line:
    check_scores(torch.from_numpy(curve.mean))
    area, unknown = curve.area(), quadrature_error(curve)
    return dict(
        area=area.mean,
        area_error=None if math.isnan(area.stderr) else area.stderr,
        quadrature_error=None if math.isnan(unknown) else unknown,
        passes=passes,
        error_reached=reached,
        sizes=curve.sizes.tolist(),
        scores=curve.mean.tolist(),
    )


def _estimates(
    lm: MaskedLM, rows: Sequence[Tensor], num_passes: int, error: float, generator: Generator
) -> list[Line]:
    """The areas of texts to a standard error of about `error` nats, by `score.until_error`."""

    def ask(places: Tensor, passes: int, generator: Generator) -> RowEstimates:
        some = [rows[i][None].double() for i in places]
        each = [
            estimate_area(lm.at_length(ids.shape[1]), ids, passes, generator=generator)
            for ids in some
        ]
        return RowEstimates(*map(torch.cat, zip(*each, strict=True)))

    found = until_error(ask, len(rows), num_passes, error, generator=generator)
    check_scores(found.mean)
    return [
        dict(
            area=mean,
            area_error=stderr,
            quadrature_error=0.0,
            passes=passes,
            error_reached=reached,
            sizes=[],
            scores=[],
        )
        for mean, stderr, _, passes, reached in zip(*map(Tensor.tolist, found), strict=True)
    ]


def quadrature_error(curve: ScoreCurve) -> float:
    """How far the area moves when every other size is left out, nats; 0 for a curve of all sizes,
    NaN for one of fewer than three, which says nothing.

    For a convex or concave curve the error of the area itself is smaller. Noise of the masks is
    in it too.
    """
    if len(curve.sizes) == curve.num_tokens:
        return 0.0
    if len(curve.sizes) < 3:
        return math.nan
    keep = np.unique(np.append(np.arange(0, len(curve.sizes), 2), len(curve.sizes) - 1))
    coarse = straight_lines(curve.sizes[keep], curve.num_tokens).sum(1) @ curve.mean[keep]
    return abs(float(coarse - curve.weights @ curve.mean))


def _pair_lines(
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
    some, own = [tuple(items[place].ids) for place in unit], draws.seeded(seed, unit[0])
    return [
        {key: value if math.isfinite(value) else None for key, value in pair._asdict().items()}
        for pair in compare(
            lm, some, num_passes=num_passes, level=level, others=others, generator=own
        )
    ]


def _choice_lines(
    lm: MaskedLM,
    items: Sequence[Item],
    unit: Sequence[int],
    *,
    num_passes: int,
    level: float,
    single: bool,
    seed: int,
) -> list[Line]:
    """What is measured of the questions of a unit."""
    questions = [items[place].ids for place in unit]
    each = check_scores(lm.pseudo_log_likelihood([ids for ids_of in questions for ids in ids_of]))
    lines: list[Line] = [
        dict(
            pseudo_log_likelihoods=scores.tolist(),
            likeliest_singly=_alone(answers, int(scores.argmax())),
        )
        for answers, scores in zip(questions, each.split([*map(len, questions)]), strict=True)
    ]
    if single:
        return lines
    own = draws.seeded(seed, unit[0])
    found = choose(lm, questions, num_passes=num_passes, level=level, generator=own)
    return [
        line | dict(chosen=_alone(ids, one.answer), decided=one.decided, passes=one.passes)
        for line, ids, one in zip(lines, questions, found, strict=True)
    ]


def _alone(answers: Sequence[Tensor], place: int) -> int | None:
    """A place from 1; None where another answer has the same tokens, so that nothing is chosen."""
    same = sum(torch.equal(answers[place], other) for other in answers)
    return place + 1 if same == 1 else None


def _variant_lines(
    marginals: Callable[[], Tensor],
    lm: MaskedLM,
    items: Sequence[Item],
    unit: Sequence[int],
    *,
    single: bool,
    areas: bool,
    num_passes: int,
    level: float,
    seed: int,
) -> list[Line]:
    """What is measured of the mutants of a unit, minus the wild type."""
    lines: list[Line] = []
    wild = items[unit[0]].ids[1]
    for place in unit:
        own = items[place].ids[0]
        gain = marginals().gather(1, own[:, None]) - marginals().gather(1, wild[:, None])
        lines.append(dict(masked_marginal=float(gain[own != wild].sum())))
    if single:
        scores = lm.pseudo_log_likelihood([wild, *(items[place].ids[0] for place in unit)])
        for line, score in zip(lines, (scores[1:] - scores[0]).tolist(), strict=True):
            line["pseudo_log_likelihood"] = score
    if areas:
        settings: dict[str, Any] = dict(num_passes=num_passes, level=level, others=False, seed=seed)
        for line, pair in zip(lines, _pair_lines(lm, items, unit, **settings), strict=True):
            names = ("difference", "error", "low", "high", "sure", "passes")
            line |= {name: pair[name] for name in names}
    return lines


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
        frame = [*item.lm.frame, lm.mask_id]
        read = place, [text.text for text in item.texts], [ids.tolist() for ids in item.ids], frame
        head["digest"] = short_digest(json.dumps(read))
    ready = partial(_by_model, partial(measure, **settings), items)
    settings |= dict(
        weights=weights_digest(lm.model),
        dtype=str(lm.model.dtype),
        device=next(lm.model.parameters()).device.type,
        around=[lm.tokenizer.decode(ids) for ids in lm.frame],
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


def mean_curve(lines: Sequence[Line], rates: np.ndarray) -> np.ndarray:
    """The mean over texts of their curves at masking rates [S] in (0, 1], nats per token [S]."""
    each = [
        np.interp(rates, np.array(line["sizes"]) / line["tokens"], line["scores"]) for line in lines
    ]
    return np.mean(each, 0)
