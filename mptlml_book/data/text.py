"""Text: four sets of GLUE, BERT's tokenizer, and what stands in for them where they are not on this machine.

Real text comes from the Hugging Face cache alone, where `make data` puts it. Without it, sentences
of the Python reference (in `pydoc_data`) stand in, and a tokenizer made from them. `note` says so.
"""

import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from . import digest_of, places
from .places import BERT

warnings.filterwarnings("ignore", "IProgress not found")  # bars of Hugging Face's libraries

Loaded = TypeVar("Loaded")
SETS = {  # the split that is scored, and the columns of text
    "ax": ("test", "premise", "hypothesis"),
    "cola": ("validation", "sentence"),
    "qnli": ("validation", "question", "sentence"),
    "mrpc": ("test", "sentence1", "sentence2"),
}
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
ABSENT = "was not at hand here (`make data` asks for it, and says why not)"


@dataclass(frozen=True, eq=False)
class Texts:
    """texts: sentences, or the numbered words of `tokenizer`, of transformers; `source` names them.

    `note` warns of a default; `size` and `digest` as of Images.
    """

    texts: list[str]
    source: str
    note: str = ""
    tokenizer: Any = None

    size = property(lambda self: f"{len(self.texts):,} {'tokens' if self.tokenizer else 'texts'}")
    digest = property(lambda self: digest_of(*(text.encode() for text in self.texts)))


def load_glue(name: str, *, train: bool = False) -> Texts:
    """The sentences of "ax", "cola", "qnli" or "mrpc": of the split that is scored, or of the training split.

    A pair of sentences gives two texts, one after the other. Falls back to the Python reference, a
    quarter for each set (its last fifth held out), with a note. Raises ValueError: another name, or
    ax for training.
    """
    if name not in SETS or (train and name == "ax"):
        raise ValueError(
            f"{name!r} (train={train}): sets are {tuple(SETS)}, and ax has no training split"
        )
    held_out, *columns = SETS[name]
    split = "train" if train else held_out
    if found := sorted(places.folder("glue").glob(f"{name}/**/glue-{split}.arrow")):
        from datasets import Dataset

        rows = Dataset.from_file(str(found[-1]))
        texts = [text for row in rows for text in (row[column] for column in columns)]
        return Texts(texts, f"GLUE {name}, {split} split")
    part = _python_reference()[list(SETS).index(name) :: len(SETS)]
    fifth = len(part) // 5
    return Texts(
        part[:-fifth] if train else part[-fifth:],
        "Python reference",
        f"GLUE {ABSENT}: sentences of the Python reference stand in for it on this page.",
    )


def load_bert_tokenizer() -> Texts:
    """BERT-base's tokenizer of 30,522 tokens; or, with a note, one made from the Python reference."""
    from transformers import AutoTokenizer

    source, note = f"{BERT}, tokenizer", ""
    tokenizer = from_cache(AutoTokenizer.from_pretrained, BERT)
    if tokenizer is None:
        tokenizer = make_tokenizer(_python_reference(), 30522, fill=True)
        source = "Python reference"
        note = (
            f"BERT's tokenizer {ABSENT}: one trained on the Python reference stands in, its "
            "vocabulary filled up to the same 30,522 with unused tokens."
        )
    words = [f"{word} {number}" for word, number in sorted(tokenizer.get_vocab().items())]
    return Texts(words, source, note, tokenizer)


def make_tokenizer(texts: list[str], vocab_size: int, *, fill: bool = False) -> Any:
    """A lower-case WordPiece tokenizer, as BERT's, from texts; `fill` adds unused tokens up to `vocab_size`."""
    from tokenizers import BertWordPieceTokenizer
    from transformers import BertTokenizer

    trained = BertWordPieceTokenizer(lowercase=True)
    # The trainer numbers letters as it meets them, which differs from run to run, and breaks ties by these numbers.
    # If it gets the letters first, in order, it finds the same pieces each time.
    split = trained._tokenizer.pre_tokenizer.pre_tokenize_str
    words = {word for text in texts for word, _ in split(trained.normalize(text))}
    letters = sorted(set("".join(words))) + sorted(
        {"##" + letter for word in words for letter in word[1:]}
    )
    trained.train_from_iterator(
        texts, vocab_size=vocab_size, show_progress=False, special_tokens=[*SPECIAL, *letters]
    )
    vocabulary = trained.get_vocab()
    if fill:
        first = len(vocabulary)
        vocabulary |= {f"[unused{k - first}]": k for k in range(first, vocab_size)}
    return BertTokenizer(vocabulary, model_max_length=512)


def from_cache(load: Callable[[str], Loaded], name: str) -> Loaded | None:
    """What `load` makes of the folder of a model, or of that name; None where it has none, or a part.

    Pages show none of it.
    """
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        return load(str(places.folder(name)))
    except OSError:
        return None


@cache
def _python_reference() -> list[str]:
    """Sentences of the Python language reference, which every Python has, under the PSF licence."""
    from pydoc_data.topics import topics

    # indented lines are code and tables
    paragraphs = [
        " ".join(part.split())
        for text in topics.values()
        for part in re.split(r"\n\s*\n", text)
        if not re.search("^   ", part, re.MULTILINE)
    ]
    sentences = [s for paragraph in paragraphs for s in re.split(r"(?<=[.?!]) ", paragraph)]
    return [s for s in sentences if 4 <= len(s.split()) <= 60 and s[0].isupper() and s[-1] in ".?!"]
