"""Texts, what holds them, and the library that reads them."""

import sys

import pytest

from mptlml.masked_lm import Corpus, MaskedLM
from mptlml_book.data import images, text
from mptlml_book.rates import RateCurve


def test_a_missing_extra_is_named_when_it_is_needed(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ModuleNotFoundError, match=r'transformers is not.*pip install ".\[text\]"'):
        MaskedLM.from_pretrained("anything")


@pytest.mark.parametrize("kind", [Corpus, RateCurve, images.Images, text.Texts])
def test_what_holds_arrays_equals_itself_alone(kind):
    assert (kind.__eq__, kind.__hash__) == (object.__eq__, object.__hash__)
