"""`Scorer`: a batch of rows goes in, the same batch comes out with scores beside its texts.

What is drawn for a row follows from the seed and its tokens alone, so a row has the same masks in
any batch, shard or order, and the same scores to rounding. Texts in several columns of one row are
alternatives, which are asked under the same masks.
"""

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import torch
from scipy import stats
from torch import Tensor

from .. import draws
from ..checks import check_choice, check_count
from ..masked_lm import NOTHING, MaskedLM, Rows
from ..score import estimate_area, mean_score
from .designs import STRATA, shared_keys, together

WORDS = "area pll word left refuse cut skip".split()  # scores, and what becomes of long texts
PASSES, SHARED, MOST = 64, 256, 10_000  # of an area, of a difference, and of either to an error
QUIET = MISSING, TOO_LONG = "missing", "too long"  # what leaves a row out and is no failure

Line = dict[str, Any]
Batch = Mapping[str, Sequence[Any]]


class Text(NamedTuple):
    """The token ids of a text, long [D], and the number of the word to which each belongs [D]."""

    ids: Tensor
    word: Tensor


@dataclass
class Scorer:
    """Called with a batch, a dict of lists, it returns the batch with scores, nats; it can be pickled.

    model: a folder, a name, or a MaskedLM; load: how a folder or name is loaded, as
    `MaskedLM.from_pretrained` takes it. text: the column of texts, or several, whose texts are
    alternatives. scores: of area, pll, word, left. error: the standard error that an area of one
    column is asked for by at most `passes`, as by `until_error`. long: a text of too many tokens is
    refused, cut, or skipped. drop: characters that are taken out of texts. absent: cells, in small
    letters, that hold none.

    A row that cannot be scored says why in `left_out`. All new columns are on the page *Score your
    own network*. Raises ValueError: an unknown option; when called, columns that are there already.
    """

    model: Any
    scores: Sequence[str] = ("area", "pll")
    text: str | Sequence[str] = "text"
    error: float | None = None
    passes: int | None = None
    seed: int = 0
    long: str = "refuse"
    drop: str = ""
    absent: Sequence[str] = ()
    load: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.names = [self.text] if isinstance(self.text, str) else [*self.text]
        self.ends = [f"_{name}" for name in self.names] if self.names[1:] else [""]
        usual = MOST if self.error else SHARED if self.names[1:] else PASSES
        self.most = check_count(self.passes or usual, "passes", 2 * STRATA)
        for word in (self.long, *self.scores):
            check_choice(word, WORDS, "long, or one of scores,")
        if self.error and self.names[1:]:
            raise ValueError("error is of areas in one column: alternatives take passes")

    @property
    def lm(self) -> MaskedLM:
        """The model, which each process loads once, when it first asks."""
        if isinstance(self.model, MaskedLM):
            return self.model
        return _loaded(str(self.model), **{"batch_tokens": 2048, **self.load})

    @cached_property
    def spaced(self) -> bool:
        """Whether the tokenizer knows single letters alone: then texts are read letter by letter."""
        names = self.lm.tokenizer.convert_ids_to_tokens(self.lm.words)
        return all(len(name) == 1 or name[0] in "<[" for name in names)

    @cached_property
    def columns(self) -> list[str]:
        """The new columns: those of a row of one word, which is scored."""
        word = Text(torch.tensor(self.lm.words[:1]), torch.zeros(1))
        return [*self._measure([[word] * len(self.names)])[0], "left_out"]

    def __call__(self, batch: Batch) -> dict[str, Any]:
        """The batch, and a list for each new column."""
        rows = self.read(batch)
        scored = iter(self._measured([row for row in rows if not isinstance(row, str)]))
        lines = [dict(left_out=row) if isinstance(row, str) else next(scored) for row in rows]
        return {**batch} | {name: [line.get(name) for line in lines] for name in self.columns}

    def read(self, batch: Batch) -> list[list[Text] | str]:
        """The tokens of each row's texts, or why it is left out."""
        if there := {*batch} & {*self.columns[:-1]}:
            raise ValueError(f"the table has columns {', '.join(sorted(there))}: rename them")
        found: list[list[Text] | str] = []
        for cells in zip(*(batch[name] for name in self.names), strict=True):
            try:
                found.append([self._read(cell) for cell in cells])
            except ValueError as error:
                found.append(str(error))
        return found

    def _read(self, cell: Any) -> Text:
        text = str(cell).translate(str.maketrans("", "", self.drop)).strip()
        if cell is None or cell != cell or text.lower() in ("", *self.absent):
            raise ValueError(MISSING)
        if isinstance(cell, list | dict | bool):
            raise ValueError(f"{text} is no text")
        ids = self.lm.tokenise(" ".join("".join(text.split())) if self.spaced else text)
        most = self.lm.max_tokens
        if len(ids) > most and self.long != "cut":
            raise ValueError(
                TOO_LONG
                if self.long == "skip"
                else f"{len(ids)} tokens are more than the {most} that the model takes"
            )
        word = [*range(len(ids))]
        if "word" in self.scores and not self.spaced:
            word = self.lm.tokenizer(text, add_special_tokens=False).word_ids()
        return Text(torch.tensor(ids[:most]), torch.tensor(word[:most]))

    def _measured(self, rows: Sequence[list[Text]]) -> list[Line]:
        """The scores of rows; what one raises by itself is its own failure."""
        try:
            return self._measure(rows)
        except Exception as error:
            if len(rows) == 1:
                return [dict(left_out=repr(error))]
            return [found for row in rows for found in self._measured([row])]

    def _measure(self, rows: Sequence[list[Text]]) -> list[Line]:
        """The scores of rows, and of alternatives the likeliest by each: none where another has the same tokens."""
        singly = iter(self._singly([text for row in rows for text in row]))
        found = []
        for row in rows:
            line = {f"{key}{end}": cell for end in self.ends for key, cell in next(singly).items()}
            if "area" in self.scores:
                line |= self._areas(row)
            for score in self.scores if row[1:] else ():
                values = [line[f"{score}{end}"] for end in self.ends]
                best = values.index(max(values))
                same = sum(torch.equal(row[best].ids, text.ids) for text in row)
                line[f"likeliest_{score}"] = self.names[best] if same == 1 else None
            if not all(math.isfinite(cell) for cell in line.values() if isinstance(cell, float)):
                raise ValueError("the model has no finite score for it")
            found.append(line)
        return found

    def _singly(self, texts: Sequence[Text]) -> list[Line]:
        """What is asked for token by token; `hidden`: what all tokens score when all are hidden."""
        lines, lengths = [Line() for _ in texts], [len(text.ids) for text in texts]
        kinds = [kind for kind in self.scores if kind != "area"]

        def rows(i: int) -> Rows:
            ids, word = texts[i]
            groups = dict(pll=torch.arange(len(ids)), word=word, left=torch.zeros_like(ids))
            single = torch.eye(len(ids)).bool()
            every = single.any(0, keepdim=True)
            # a token, and the later ones of its group
            later = [(groups[kind][:, None] == groups[kind]).triu() for kind in kinds]
            hidden, asked = torch.cat([every, *later]), torch.cat([every, *[single] * len(kinds)])
            return Rows(torch.where(hidden, self.lm.mask_id, ids), torch.where(asked, ids, NOTHING))

        for i, answer in self.lm.log_probs(lengths, rows):
            sums = [float(part.sum()) for part in answer.split(lengths[i])]
            lines[i] = dict(zip(["hidden", *kinds], sums, strict=True)) | dict(tokens=lengths[i])
        return lines

    def _areas(self, row: Sequence[Text]) -> Line:
        """The area of a text, its error; of several the largest error of the likeliest one's leads."""
        texts = [text.ids[None].double() for text in row]
        own = draws.seeded(self.seed, zlib.crc32(torch.cat(texts, 1).numpy().tobytes()))
        if not row[1:]:
            model = self.lm.at_length(texts[0].numel())
            area = estimate_area(model, texts[0], self.most, error=self.error, generator=own)
            return dict(
                area=float(area.mean), area_error=float(area.stderr), passes=int(area.passes)
            )
        keys = [shared_keys(row[0].ids.tolist(), text.ids.tolist()) for text in row]
        masks = together(self.most // STRATA, keys, own)
        each = [
            mean_score(self.lm.at_length(ids.numel()), ids, seen) * ids.numel()
            for ids, seen in zip(texts, masks, strict=True)
        ]
        rounds = torch.stack(each).unflatten(1, (-1, STRATA)).mean(-1).numpy()  # [K, rounds]
        areas, others = rounds.mean(1), len(row[1:])
        leads = rounds[areas.argmax()] - rounds
        error = stats.sem(leads, 1)
        # by Student's t, at 95% for all leads together
        sure = leads.mean(1) > stats.t.ppf(1 - 0.025 / others, rounds.shape[1] - 1) * error
        return dict(area_error=error.max().item(), decided=int(sure.sum() == others)) | {
            f"area{end}": area for end, area in zip(self.ends, areas.tolist(), strict=True)
        }


_loaded = lru_cache(1)(MaskedLM.from_pretrained)
