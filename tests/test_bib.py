"""The bibliography: in one form, and in step with what the pages cite."""

import re
import sys
from pathlib import Path

import pytest
from pybtex.database import parse_string

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "book" / "_ext"))

import book_bib  # noqa: E402

TEXT = (ROOT / "book" / "references.bib").read_text(encoding="utf-8")
MESSY = """% A remark that stays.

@Article{zeta2001, year = 2001, title="The {Z}eta   function,
  again", author={Zeta, Z. and  Eta, E.}}
@book{alpha1999,
  title = {A, with a comma and {\\"a} brace},
  author = {Alpha, A.}, publisher = {P}, year = {1999}}
"""
TIDY = """% A remark that stays.

@book{alpha1999,
  author    = {Alpha, A.},
  title     = {A, with a comma and {\\"a} brace},
  publisher = {P},
  year      = {1999}
}

@article{zeta2001,
  author = {Zeta, Z. and Eta, E.},
  title  = {The {Z}eta function, again},
  year   = {2001}
}
"""


def test_the_bibliography_is_in_order():
    assert book_bib.tidy(TEXT) == TEXT, "run `make bib`"


def test_every_citation_has_its_entry_and_every_entry_its_citation():
    assert book_bib.faults(TEXT, book_bib.cited()) == []


def test_an_untidy_bibliography_is_put_in_order_and_says_the_same():
    assert book_bib.tidy(MESSY) == TIDY == book_bib.tidy(TIDY)
    before, after = (parse_string(text, "bibtex") for text in (MESSY, TIDY))
    assert set(before.entries) == set(after.entries)
    for key, entry in before.entries.items():
        assert after.entries[key].persons == entry.persons
        assert {name: " ".join(value.split()) for name, value in entry.fields.items()} == dict(
            after.entries[key].fields)


@pytest.mark.parametrize(("text", "states"), [
    ("@book{a, title={A}}\n@book{a, title={B}}", "a: the key"),
    ("@book{a, title={A}, Title={B}}", "a: the key or a field occurs twice"),
    ("@book{a, title={A}, colour={red}}", "['colour']"),
    ("@book{a, title={A", "cannot be read"),
])
def test_what_cannot_be_tidied_is_refused(text, states):
    with pytest.raises(ValueError, match=re.escape(states)):
        book_bib.tidy(text)


def test_citations_are_read_from_every_kind_of_role(tmp_path):
    for folder in ("book", "notebooks"):
        (tmp_path / folder).mkdir()
    (tmp_path / "book" / "a.md").write_text("{cite}`one` and {cite:t}`two,three`")
    (tmp_path / "notebooks" / "b.md").write_text("{cite:p}`three, four`; `five`")
    assert book_bib.cited(tmp_path) == {"one", "two", "three", "four"}
    assert book_bib.faults("@book{one, title={A}}\n@book{six, title={A}}", {"one", "two"}) == [
        "two is cited and not in the bibliography", "six is in the bibliography and cited nowhere"]


@pytest.mark.parametrize(("text", "status", "left"), [(MESSY, 1, TIDY), ("@book{a", 1, "@book{a"), ("", 0, "")])
def test_the_command_writes_the_tidy_form_and_tells(tmp_path, text, status, left):
    (tmp_path / "book").mkdir()
    path = tmp_path / "book" / "references.bib"
    path.write_text(text)
    assert book_bib.main(tmp_path) == status
    assert path.read_text() == left
