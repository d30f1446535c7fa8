"""Text with and without a connection: the cache, one short probe, and the Python reference in their place."""

import pytest

from mptlml.data import text as glue
from mptlml.models.masked_lm import MaskedLM


@pytest.fixture
def nothing_at_hand(monkeypatch):
    """No cache and no connection."""
    def missing(*args, **kwargs):
        raise FileNotFoundError

    monkeypatch.setattr(glue, "_load_dataset", missing)
    monkeypatch.setattr("transformers.AutoTokenizer.from_pretrained", missing)
    monkeypatch.setattr(glue, "_online", lambda: False)


def test_stand_ins_are_disjoint_and_say_so(nothing_at_hand):
    parts = [glue.load_glue(name).texts for name in glue.SETS]
    parts += [glue.load_glue(name, train=True).texts for name in ("cola", "qnli", "mrpc")]
    assert all(len(part) > 50 for part in parts)
    starts = [id(text) for part in parts for text in part]
    assert len(starts) == len(set(starts))
    found = glue.load_glue("cola")
    assert found.source == "Python reference" and "stand in" in found.note


def test_the_stand_in_tokenizer_has_berts_size(nothing_at_hand):
    tokenizer, note = glue.load_bert_tokenizer()
    assert len(tokenizer) == 30522 and "stands in" in note
    ids = tokenizer("The statement is executed.").input_ids
    assert ids[0] == tokenizer.cls_token_id and ids[-1] == tokenizer.sep_token_id
    assert tokenizer.unk_token_id not in ids


def test_weights_that_cannot_be_had_are_none(nothing_at_hand, tmp_path):
    assert glue.load_masked_lm(str(tmp_path / "nothing")) is None


@pytest.mark.parametrize(("name", "train"), [("sst2", False), ("ax", True)])
def test_other_sets_are_refused(name, train):
    with pytest.raises(ValueError, match="ax has no training split"):
        glue.load_glue(name, train=train)


def test_one_probe_only(monkeypatch):
    """The cache is asked first; without a connection the hub is not asked at all."""
    asked = []

    def load(local):
        asked.append(local)
        raise OSError

    monkeypatch.setattr(glue, "_online", lambda: False)
    assert glue._from_hub(load) is None and asked == [True]
    monkeypatch.setattr(glue, "_online", lambda: True)
    assert glue._from_hub(load) is None and asked == [True, True, False]


def test_loading_prints_nothing_on_a_page_and_leaves_the_settings_alone(tmp_path, capfd):
    from transformers import BertConfig
    from transformers.utils import logging

    tokenizer = glue.make_tokenizer(["The cat sat on the mat."] * 3, 60)
    saved = MaskedLM.random(BertConfig(vocab_size=len(tokenizer), hidden_size=8, num_hidden_layers=1,
                                       num_attention_heads=1, intermediate_size=8), tokenizer, seed=0)
    saved.model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    capfd.readouterr()
    before = logging.get_verbosity(), logging.is_progress_bar_enabled()
    assert glue.load_masked_lm(str(tmp_path)).vocab_size == len(tokenizer)
    assert capfd.readouterr() == ("", "")
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == before


def test_the_same_text_gives_the_same_tokenizer():
    texts = glue._python_reference()[:2000]
    one, two = (glue.make_tokenizer(texts, 300) for _ in range(2))
    assert one.get_vocab() == two.get_vocab() and len(one) == 300
    assert one.convert_ids_to_tokens(one(texts[0]).input_ids) == two.convert_ids_to_tokens(two(texts[0]).input_ids)
    back = one.decode(one(texts[0]).input_ids, skip_special_tokens=True)
    assert back.replace(" ", "") == texts[0].lower().replace(" ", "")
