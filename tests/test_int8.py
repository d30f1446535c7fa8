"""Linear layers in 8-bit whole numbers: near the network in float32, and how near is told."""

import json

import pytest
import torch

from mptlml import draws
from mptlml.text import MaskedLM, command
from mptlml.text.int8 import int8_error

TEXTS = ["the cat sat", "a dog ran on the mat", "the mat", "a cat sat on a dog"]


def test_the_error_is_that_of_scores_at_equal_masks(folder):
    whole, fast = (MaskedLM.from_pretrained(str(folder), local_files_only=True, int8=int8) for int8 in (False, True))
    error = int8_error(fast, TEXTS, generator=draws.seeded(3))
    seed = draws.seed(draws.seeded(3))
    areas = [torch.tensor([curve.area().mean for curve in lm.curves(TEXTS, num_masks=4, generator=draws.seeded(seed))])
             for lm in (fast, whole)]
    singles = [lm.pseudo_log_likelihood(TEXTS) for lm in (fast, whole)]
    assert error.texts == 4
    for (one, other), mean, spread in ((areas, *error[1:3]), (singles, *error[3:])):
        assert mean == pytest.approx((one - other).mean().item(), abs=1e-5)
        assert spread == pytest.approx((one - other).std().item(), abs=1e-5)
        assert 0 < spread < 0.1 and abs(mean) < 0.1  # of about 10 nats
    again = fast.given("the cat")
    assert int8_error(again, TEXTS, generator=draws.seeded(3)).pseudo_log_likelihood == pytest.approx(
        (again.pseudo_log_likelihood(TEXTS) - whole.given("the cat").pseudo_log_likelihood(TEXTS)).mean().item())


def test_the_command_tells_the_error_and_goes_on_with_int8_alone(folder, tmp_path, capsys):
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    words = ["score", str(tmp_path / "texts.txt"), "--model", str(folder), "-o", str(tmp_path / "s.jsonl")]
    command.main([*words, "--int8"])
    told, written = capsys.readouterr().err, (tmp_path / "s.jsonl").read_text()
    about = json.loads((tmp_path / "s.settings.json").read_text())
    assert about["dtype"] == "int8" and about["int8_error"]["texts"] == 4
    assert f"pseudo-log-likelihood {about['int8_error']['pseudo_log_likelihood']:.2f} (spread" in told
    (tmp_path / "two.txt").write_text("cat " * 600 + "\na dog\n")
    command.main([words[0], str(tmp_path / "two.txt"), *words[2:-1], str(tmp_path / "cut"), "--int8", "--truncate"])
    assert "the error of int8 is not known" in capsys.readouterr().err
    assert (tmp_path / "cut.settings.json").is_file()
    (tmp_path / "s.jsonl").write_text(written[:-50])
    command.main([*words, "--int8", "--resume"])
    assert (tmp_path / "s.jsonl").read_text() == written
    for more, message in ((["--resume"], "was written with other settings"),
                          (["--int8", "--bfloat16", "--overwrite"], "not allowed with")):
        with pytest.raises(SystemExit) as left:
            command.main([*words, *more])
        assert message in f"{left.value.code} {capsys.readouterr().err}"


def test_int8_is_refused_where_it_cannot_be(folder):
    lm = MaskedLM.from_pretrained(str(folder), local_files_only=True)
    with pytest.raises(ValueError, match="int8=True and at least two texts"):
        int8_error(lm, TEXTS, generator=draws.seeded(0))
    with pytest.raises(ValueError, match="float32 on the CPU, got torch.bfloat16 on cpu"):
        MaskedLM(lm.model.to(torch.bfloat16), lm.tokenizer, int8=True)
