"""Scores of tokens, and models that come with code of their own or from a place in a repository."""

import json

import pytest
import torch
from fakes import saved_network

from mptlml import __version__
from mptlml.text import MaskedLM, command

CODE = '''import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import MaskedLMOutput


class Settings(PreTrainedConfig):
    model_type = "small_diffusion"

    def __init__(self, vocab_size=20, width=16, **more):
        super().__init__(**more)
        self.vocab_size, self.width = vocab_size, width


class Network(PreTrainedModel):
    """A masked diffusion network as they come: it sees all tokens, has no attention mask, and takes a time."""

    config_class = Settings

    def __init__(self, config):
        super().__init__(config)
        self.words = nn.Embedding(config.vocab_size, config.width)
        self.layer = nn.TransformerEncoderLayer(config.width, 2, 32, dropout=0, batch_first=True)
        self.head = nn.Linear(config.width, config.vocab_size)
        self.post_init()

    def get_input_embeddings(self):
        return self.words

    def get_output_embeddings(self):
        return self.head

    def forward(self, input_ids, attention_mask=None, time=0.0):
        return MaskedLMOutput(logits=self.head(self.layer(self.words(input_ids) + time)))
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    where = tmp_path_factory.mktemp("model")
    saved_network(where, "the cat sat on the mat a dog ran")
    return where


@pytest.fixture(scope="module")
def lm(folder):
    return MaskedLM.from_pretrained(str(folder), local_files_only=True)


def test_the_scores_of_tokens_are_spelt_and_sum_to_the_pseudo_log_likelihood(lm):
    found = lm.token_scores("the cat sat")
    assert found.tokens == ["the", "cat", "sat"]
    assert found.scores.sum() == pytest.approx(lm.pseudo_log_likelihood(["the cat sat"]).item(), abs=1e-6)
    ids = lm.encode("the cat sat")
    assert found.scores == pytest.approx(lm.masked_marginals("the cat sat")[range(3), ids].numpy(), abs=1e-6)


def test_a_network_with_code_of_its_own_is_asked_where_it_is_trusted(folder, lm, tmp_path):
    """A diffusion network without an attention mask: right for texts of one length, and of several."""
    lm.tokenizer.save_pretrained(tmp_path)
    (tmp_path / "network.py").write_text(CODE)
    about = {"model_type": "small_diffusion", "vocab_size": lm.vocab_size, "architectures": ["Network"],
             "auto_map": {"AutoConfig": "network.Settings", "AutoModelForMaskedLM": "network.Network"}}
    (tmp_path / "config.json").write_text(json.dumps(about))
    space = {}
    exec(CODE, space)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        made = space["Network"](space["Settings"](vocab_size=lm.vocab_size))
    made.save_pretrained(tmp_path / "weights")
    (tmp_path / "weights" / "model.safetensors").rename(tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="trust_remote_code|contains custom code"):
        MaskedLM.from_pretrained(str(tmp_path), local_files_only=True)
    net = MaskedLM.from_pretrained(str(tmp_path), local_files_only=True, trust_remote_code=True)
    texts = ["the cat sat", "a dog ran on the mat"]
    both = net.pseudo_log_likelihood(texts)
    own = MaskedLM(made, lm.tokenizer)
    for text, found in zip(texts, both.tolist(), strict=True):
        assert own.pseudo_log_likelihood([text]).item() == pytest.approx(found, abs=1e-5)


def test_a_model_may_lie_in_a_folder_of_its_repository(folder, lm):
    inner = MaskedLM.from_pretrained(str(folder.parent), subfolder=folder.name, local_files_only=True)
    assert torch.equal(inner.pseudo_log_likelihood(["the cat"]), lm.pseudo_log_likelihood(["the cat"]))


def test_the_command_says_its_version(capsys):
    with pytest.raises(SystemExit) as left:
        command.main(["--version"])
    assert left.value.code == 0 and capsys.readouterr().out == f"mptlml {__version__}\n"
