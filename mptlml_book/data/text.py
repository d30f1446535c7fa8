"""Text: four sets of GLUE, BERT's tokenizer, and what stands in for them without a connection.

Real text comes from the Hugging Face cache, or else, after one short probe, from the hub. Without
either, sentences of the Python reference (in `pydoc_data`) stand in, and a tokenizer made from
them. `note` says so.
"""

import contextlib
import os
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from tqdm import TqdmWarning

from mptlml.extras import needs

from . import digest_of
from .probe import (
    NOBODY,
    Late,
    arrivals,
    asked_before,
    download,
    in_words,
    quiet_network,
    refusal,
    unless_stalled,
)

with warnings.catch_warnings():  # Hugging Face's libraries import it, and it asks for widgets
    warnings.simplefilter("ignore", TqdmWarning)
    import tqdm.auto  # noqa: F401

Loaded = TypeVar("Loaded")
SETS = {
    "ax": "premise hypothesis",
    "cola": "sentence",
    "qnli": "question sentence",
    "mrpc": "sentence1 sentence2",
}
HELD_OUT = {"ax": "test", "cola": "validation", "qnli": "validation", "mrpc": "test"}
GLUE, BERT = "nyu-mll/glue", "google-bert/bert-base-uncased"
REVISIONS = {  # asked of the hub; a cache may hold others, which the digests of the data tell apart
    GLUE: "bcdcba79d07bc864c1c254ccfcedcce55bcc9a8c",
    BERT: "86b5e0934494bd15c9632b12f734a8a67f723594",
}
_failed: list[str] = []  # why the hub has not delivered in this session
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


@dataclass(frozen=True, eq=False)
class Texts:
    """texts: sentences; `source` names the data; `note` warns of a default; `size`, `digest` as of Images."""

    texts: list[str]
    source: str
    note: str = ""

    size = property(lambda self: f"{len(self.texts):,} texts")
    digest = property(lambda self: digest_of(*(text.encode() for text in self.texts)))


@dataclass(frozen=True, eq=False)
class Tokenizer:
    """tokenizer: of transformers; `source` names the text it was made for; `digest` is of the vocabulary."""

    tokenizer: Any
    source: str
    note: str = ""

    size = property(lambda self: f"{len(self.tokenizer):,} tokens")
    digest = property(
        lambda self: digest_of(
            *(f"{token} {id}".encode() for token, id in sorted(self.tokenizer.get_vocab().items()))
        )
    )


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
    with needs("book"):
        from datasets import load_dataset
    split = "train" if train else HELD_OUT[name]
    rows = from_hub(
        lambda revision=None, **_: load_dataset(GLUE, name, split=split, revision=revision), GLUE
    )
    if rows is not None:
        columns = [rows[column] for column in SETS[name].split()]
        texts = [text for row in zip(*columns, strict=True) for text in row]
        return Texts(texts, f"GLUE {name}, {split} split")
    part = _python_reference()[list(SETS).index(name) :: len(SETS)]
    held_out = len(part) // 5
    note = (
        f"GLUE was not at hand here ({why_absent()}, and it is not in the Hugging Face cache): sentences of the "
        "Python reference stand in for it on this page."
    )
    return Texts(part[:-held_out] if train else part[-held_out:], "Python reference", note)


def load_bert_tokenizer() -> Tokenizer:
    """BERT-base's tokenizer of 30,522 tokens; or, with a note, one made from the Python reference."""
    with needs("book"):
        from transformers import AutoTokenizer
    found = from_hub(lambda **where: AutoTokenizer.from_pretrained(BERT, **where), BERT)
    if found is not None:
        return Tokenizer(found, f"{BERT}, tokenizer")
    return Tokenizer(
        make_tokenizer(_python_reference(), 30522, fill=True),
        "Python reference",
        (
            f"BERT's tokenizer was not at hand here ({why_absent()}): one trained on the Python reference "
            "stands in, its vocabulary filled up to the same 30,522 with unused tokens."
        ),
    )


def fetch_bert() -> str:
    """Put BERT's tokenizer and weights into the Hugging Face cache; why that failed, "" where not.

    The weights, 0.4 GB, go on where an earlier try ended, which the libraries do not do from run to
    run.
    """
    if load_bert_tokenizer().note:
        return why_absent()
    from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url

    folder = Path(constants.HF_HUB_CACHE, f"models--{BERT.replace('/', '--')}")
    try:
        with quiet_network(), _watched(), unless_stalled():
            for name in ("config.json", "model.safetensors"):
                about = get_hf_file_metadata(hf_hub_url(BERT, name, revision=REVISIONS[BERT]))
                blob = folder / "blobs" / str(about.etag)
                blob.parent.mkdir(parents=True, exist_ok=True)
                if not blob.exists():
                    download(about.location, blob)
                shown = folder / "snapshots" / str(about.commit_hash) / name
                if not shown.exists():
                    shown.symlink_to(Path("..", "..", "blobs", blob.name))
    except (Exception, Late) as error:
        return in_words(error)
    return ""


def make_tokenizer(texts: list[str], vocab_size: int, *, fill: bool = False) -> Any:
    """A lower-case WordPiece tokenizer, as BERT's, from texts; `fill` adds unused tokens up to `vocab_size`."""
    with needs("book"):
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


def from_hub(load: Callable[..., Loaded], name: str) -> Loaded | None:
    """What `load(local_files_only=, revision=)` returns: from the Hugging Face cache, or else from the hub.

    None where neither has `name` whole, whatever `load` raises (`why_absent` says why); a hub that
    failed once is not asked again. A folder `name` alone is read, and what `load` raises is raised.
    Pages show none of it.
    """
    # before stderr is redirected: these libraries log to the stderr of their import
    with needs("book"):
        import datasets  # noqa: F401
        import transformers  # noqa: F401
    if os.path.isdir(name):
        return load(local_files_only=True)
    asked = {"revision": REVISIONS[name]} if name in REVISIONS else {}
    for cached in (asked, {}) if asked else ({},):
        # nothing in the cache, or a part
        with contextlib.suppress(Exception), quiet_network(), _offline():
            return load(local_files_only=True, **cached)
    if why_absent():
        return None
    try:
        with quiet_network(), _watched(), unless_stalled():
            return load(local_files_only=False, **asked)
    except (Exception, Late) as error:  # of many kinds: a broken connection, a full disk
        _failed.append(in_words(error))
    return None


@contextlib.contextmanager
def _offline() -> Iterator[None]:
    """Keep the libraries to their caches: without this they ask the hub first, again and again."""
    import datasets
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE
    try:
        constants.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE = True
        yield
    finally:
        constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE = before


@contextlib.contextmanager
def _watched() -> Iterator[None]:
    """Note what the hub sends and refuses, and fetch by HTTP alone, whose stalls can be seen."""
    import httpx2
    from huggingface_hub import constants, set_client_factory
    from huggingface_hub.utils import _http

    class Counted(httpx2.SyncByteStream):
        def __init__(self, stream: Any) -> None:
            self.stream = stream

        def __iter__(self) -> Iterator[bytes]:
            for part in self.stream:
                arrivals.came(len(part))
                yield part

        def close(self) -> None:
            self.stream.close()

    def client() -> Any:
        made = _http.default_client_factory()
        made.event_hooks = made.event_hooks | {"response": [watch]}
        return made

    def watch(response: Any) -> None:
        if response.status_code in (401, 403, 429) or response.status_code >= 500:
            arrivals.refused(response.status_code)
        else:
            arrivals.refusal = ""
            arrivals.came(0)
            response.stream = Counted(response.stream)

    before = constants.HF_HUB_DISABLE_XET
    try:
        constants.HF_HUB_DISABLE_XET = True
        set_client_factory(client)
        yield
    finally:
        constants.HF_HUB_DISABLE_XET = before
        set_client_factory(_http.default_client_factory)


def why_absent() -> str:
    """Why the hub cannot be asked, "" where it can; never asked where the reader's settings say offline."""
    from huggingface_hub import constants

    offline = os.environ.get("HF_DATASETS_OFFLINE", "0").upper() in {"1", "TRUE", "YES", "ON"}
    if constants.HF_HUB_OFFLINE or offline:
        return NOBODY
    before = _failed[0] if _failed else asked_before("hub")
    return before or refusal(f"{constants.ENDPOINT}/api/models/{BERT}", b"{")


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
