"""Rows as the authors' public research scripts draw them."""

import torch
from torch import Tensor

SCRIPTS_PRECISION = 5  # beta of the scripts, sigma_0^2 = 1 / beta


def scripts_rows(
    num_rows: int, num_tokens: int, num_latents: int, *, seed: int
) -> tuple[Tensor, Tensor, float]:
    """PPCA data as the authors' public research scripts draw them: (x [N, D], weight [D, K], noise variance 1/beta).

    The noise is as coded there: one number per row, (1/beta) randn(N, 1), shared by its D tokens.
    The model has independent noise for each token, of standard deviation sqrt(1/beta), so it is
    misspecified for these rows. For rows that fit the model use `PPCA(weight,
    noise_variance).sample(...)`. To reproduce Table 1, numbers are drawn in float32, in the
    scripts' order, from `seed`; they are returned in float64.
    """
    generator = torch.Generator().manual_seed(seed)
    weight, latents, noise = (
        torch.randn(*shape, generator=generator, dtype=torch.float32)
        for shape in ((num_tokens, num_latents), (num_rows, num_latents), (num_rows, 1))
    )
    x = latents @ weight.T + noise / SCRIPTS_PRECISION
    return x.double(), weight.double(), 1 / SCRIPTS_PRECISION
