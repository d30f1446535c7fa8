"""Text with and without a connection: the cache, one short probe, and the Python reference in their place."""

import logging
import sys
from unittest import mock

import pytest
import torch
from fakes import saved_network
from huggingface_hub import constants

from mptlml.masked_lm import MaskedLM
from mptlml_book.data import images, text


def test_stand_ins_are_disjoint_and_say_so(monkeypatch):
    monkeypatch.setattr(text, "from_hub", lambda load, name: None)
    monkeypatch.setattr(text, "why_absent", lambda: "it rained")
    found = [text.load_glue(name) for name in text.SETS]
    found += [text.load_glue(name, train=True) for name in ("cola", "qnli", "mrpc")]
    starts = [id(sentence) for part in found for sentence in part.texts]
    assert len(starts) == len(set(starts)) and min(len(part.texts) for part in found) > 50
    assert len(found[4].texts) // 4 == len(found[1].texts)  # a fifth is held out
    bert = text.load_bert_tokenizer()
    assert all(
        part.source == "Python reference" and "(it rained" in part.note for part in (*found, bert)
    )
    ids = bert.tokenizer("The statement is executed.").input_ids
    assert ids[0] == bert.tokenizer.cls_token_id and ids[-1] == bert.tokenizer.sep_token_id
    assert all(
        sentence[0].isupper() and sentence[-1] in ".?!" and 4 <= len(sentence.split()) <= 60
        for part in found
        for sentence in part.texts
    )
    assert len(bert.tokenizer) == 30522 and bert.tokenizer.model_max_length == 512
    assert bert.tokenizer.unk_token_id not in ids
    monkeypatch.setattr(text, "from_hub", lambda load, name: bert.tokenizer)
    found = text.load_bert_tokenizer()
    assert (found.tokenizer, found.source, found.note) == (
        bert.tokenizer,
        f"{text.BERT}, tokenizer",
        "",
    )


def test_real_sets_give_the_texts_of_a_pair_in_turn(monkeypatch):
    rows = {"sentence1": ["a", "b"], "sentence2": ["c", "d"]}
    monkeypatch.setattr(
        "datasets.load_dataset",
        lambda path, name, split, revision: rows if (name, split) == ("mrpc", "train") else None,
    )
    found = text.load_glue("mrpc", train=True)
    assert (found.texts, found.source, found.note) == (
        ["a", "c", "b", "d"],
        "GLUE mrpc, train split",
        "",
    )
    for name, train in (("sst2", False), ("ax", True)):
        with pytest.raises(ValueError, match="ax has no training split"):
            text.load_glue(name, train=train)


@pytest.mark.parametrize("offline", [True, False])
@pytest.mark.parametrize("reachable", [True, False])
def test_the_cache_is_asked_first_and_the_hub_only_with_a_connection(
    reachable, offline, monkeypatch
):
    asked = []

    def load(local_files_only):
        asked.append((local_files_only, constants.HF_HUB_OFFLINE))
        raise OSError

    monkeypatch.delenv("HF_DATASETS_OFFLINE", raising=False)
    monkeypatch.setattr(text, "refusal", lambda address, begins: "" if reachable else "it rained")
    monkeypatch.setattr(text, "_failed", [])
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", offline)
    assert text.from_hub(load, "some/model") is None
    assert asked == [(True, True)] + [(False, False)] * (reachable and not offline)
    assert text.from_hub(load, "some/model") is None  # a hub that failed is not asked a second time
    assert asked[-1] == (True, True) and len(asked) == 2 + (reachable and not offline)
    assert constants.HF_HUB_OFFLINE is offline


def test_the_hub_is_asked_for_a_revision_and_the_cache_for_any(monkeypatch):
    asked = []

    def load(**where):
        asked.append(where)
        raise OSError

    monkeypatch.setattr(text, "why_absent", lambda: "")
    assert text.from_hub(load, text.BERT) is None
    revision = {"revision": text.REVISIONS[text.BERT]}
    assert asked == [
        {"local_files_only": True} | revision,
        {"local_files_only": True},
        {"local_files_only": False} | revision,
    ]
    assert all(len(revision) == 40 for revision in text.REVISIONS.values())


def test_a_folder_is_read_itself_and_its_errors_are_told(tmp_path, monkeypatch):
    monkeypatch.setattr(text, "refusal", lambda *_: pytest.fail("the hub was asked"))
    with pytest.raises(ValueError, match="cannot tell"):
        text.from_hub(mock.Mock(side_effect=ValueError("cannot tell")), str(tmp_path))


def test_loading_prints_nothing_on_a_page(tmp_path, capfd, caplog):
    def load(local_files_only):
        logging.getLogger("transformers").warning("not on a page")
        return MaskedLM.from_pretrained(tmp_path, local_files_only=local_files_only)

    saved = saved_network(tmp_path, "The cat sat on the mat.")
    capfd.readouterr()
    found = text.from_hub(load, "some/model")
    assert capfd.readouterr() == ("", "")
    torch.testing.assert_close(
        found.pseudo_log_likelihood(["the cat"]), saved.pseudo_log_likelihood(["the cat"])
    )
    logging.getLogger("transformers").warning("from now on")
    assert caplog.messages == ["from now on"]


def test_the_same_text_gives_the_same_tokenizer():
    texts = text._python_reference()[:2000]
    one, two = (text.make_tokenizer(texts, 300) for _ in range(2))
    assert one.get_vocab() == two.get_vocab() and len(one) == 300
    back = one.decode(one(texts[0]).input_ids, skip_special_tokens=True)
    assert back.replace(" ", "") == texts[0].lower().replace(" ", "")


@pytest.mark.parametrize(
    ("extra", "missing", "call"),
    [
        ("book", "sklearn.datasets", lambda: images.load_images("digits")),
        ("book", "torchvision", lambda: images.load_images("mnist")),
        ("book", "datasets", lambda: text.load_glue("ax")),
        ("book", "tokenizers", lambda: text.make_tokenizer([], 60)),
        ("text", "transformers", lambda: MaskedLM.from_pretrained("anything")),
    ],
)
def test_a_missing_extra_is_named_when_it_is_needed(extra, missing, call, monkeypatch):
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ModuleNotFoundError) as error:
        call()
    assert (
        str(error.value)
        == f'{missing} is not installed: in a copy of the repository of mptlml, pip install ".[{extra}]"'
    )
