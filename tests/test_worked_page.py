"""The page *Score your own network*: its blocks run as they stand, with a tiny network in place of Chapter 13's."""

import re
import shlex

import pandas as pd
from fakes import saved_network

from benchmarks.score_your_own import BLOCK, PAGE
from mptlml.text import command
from mptlml.text.results import read_results


def test_the_page_runs_as_it_stands(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    page = PAGE.read_text(encoding="utf-8")
    blocks = BLOCK.findall(page)
    assert [kind for kind, *_ in blocks] == ["python", "bash", "python", "bash", "python"]
    saved_network(tmp_path / "network", "E V Q L V E S A C D F G H I K M N P R T W Y")
    make = re.sub(r"(?s)lm = .*?genes = .*?\n", "genes = ['E V Q L V E S', 'V Q S E', 'L Q E V E']\n", blocks[0][1])
    for (kind, code, _, text) in [("python", make, "", ""), *blocks[1:]]:
        exec(code, {}) if kind == "python" else command.main(shlex.split(code)[1:])
        found = capsys.readouterr().out
        assert re.sub(r"\S*\d\S*", "", found).split()[:6] == re.sub(r"\S*\d\S*", "", text).split()[:6] or not text
    assert len(pd.read_json(tmp_path / "scores.jsonl", lines=True)) == 3 and (tmp_path / "curve.svg").is_file()
    fields = {field for name in ("scores", "pairs") for field in read_results(tmp_path / f"{name}.jsonl")[0]}
    for field in fields | {"spellings", "token_scores", "left_to_right"}:
        assert f"`{field}`" in page, field
