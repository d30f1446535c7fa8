"""Probabilistic PCA: every answer in closed form, through the K x K posterior of the latent variable.

x = W z + mu + eps with z ~ N(0, I_K), eps ~ N(0, sigma^2 I_D); so p(x) = N(mu, S), S = W W^T +
sigma^2 I (Eq. 6). Given the observed tokens R, with A = sigma^2 I + W_R^T W_R (K x K), z has the
posterior mean A^-1 W_R^T (x_R - mu_R) and covariance sigma^2 A^-1, hence for each masked token j

    m_j = mu_j + w_j^T A^-1 W_R^T (x_R - mu_R),      v_j = sigma^2 (1 + w_j^T A^-1 w_j).

By the matrix inversion lemma this is Eq. 7 with the minus sign of the Schur complement.
"""

import math
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from ..checks import check_count, check_finite, check_mask, check_rows, check_shapes
from ..draws import randn
from ..memory import at_once
from ..protocol import all_observed

LOG_2PI = math.log(2 * math.pi)
AT_ONCE = 2**17  # masks x K x D numbers: about the size of a processor's cache
LOST = 1e-4  # nats: about the most that rounding may cost


@dataclass(frozen=True, eq=False)
class SecondMoment:
    """Mean [D] and covariance [D, D] of rows or of a population: a Gaussian's mean score depends on nothing else."""

    mean: Tensor
    covariance: Tensor

    @classmethod
    def of(cls, x: Tensor) -> "SecondMoment":
        """That of rows x [N, D], with divisor N, in float64. Raises ValueError: x is not a finite matrix."""
        check_rows(x, x.shape[-1])
        x = x.double()
        centred = x - x.mean(0)
        return cls(x.mean(0), centred.T @ centred / len(x))

    @property
    def device(self) -> torch.device:
        """The device of the numbers."""
        return self.mean.device

    def about(self, point: Tensor) -> "SecondMoment":
        """The second moment about another point p [D], E[(x - p)(x - p)^T], in float64: `mean` is p then."""
        offset = self.mean.double() - point.double()
        return SecondMoment(point.double(), self.covariance.double() + offset.outer(offset))


class PPCA:
    """Probabilistic PCA (Tipping & Bishop 1999): weight W [D, K], noise_variance sigma^2 > 0, mean mu [D], None for 0.

    Parameters may require gradients; results follow their dtype and device, and are computed in
    float64, because they are differences of large numbers where the noise is small. Raises
    ValueError: shapes that do not fit, K > D, a noise variance that is not positive, NaN. The
    methods raise it for x and observed that do not fit, NaN at an observed token, and a sigma^2 so
    small that rounding would cost digits.
    """

    def __init__(
        self, weight: Tensor, noise_variance: Tensor | float, mean: Tensor | None = None
    ) -> None:
        if weight.ndim != 2 or not weight.is_floating_point():
            raise ValueError(
                f"weight must be a floating matrix [D, K], got shape {tuple(weight.shape)}"
            )
        self.num_tokens, self.num_latents = weight.shape
        if not 1 <= self.num_latents <= self.num_tokens:
            raise ValueError(
                f"K = {self.num_latents} latent dimensions do not fit D = {self.num_tokens} tokens: "
                "1 <= K <= D"
            )
        self.weight = weight
        self.noise_variance = torch.as_tensor(
            noise_variance, dtype=weight.dtype, device=weight.device
        )
        if self.noise_variance.ndim != 0 or not 0 < self.noise_variance < math.inf:
            raise ValueError(
                f"the noise variance must be one positive number, got {noise_variance}"
            )
        self.mean = weight.new_zeros(self.num_tokens) if mean is None else mean.to(weight)
        if self.mean.shape != (self.num_tokens,):
            raise ValueError(
                f"mean has shape {tuple(self.mean.shape)}, the weight {tuple(weight.shape)}"
            )
        check_finite(self.weight, what="weight")
        check_finite(self.mean, what="mean")

    @classmethod
    def fit(
        cls,
        data: Tensor | SecondMoment,
        num_latents: int,
        noise_variance: Tensor | float | None = None,
        mean: Tensor | None = None,
    ) -> "PPCA":
        """The maximum-likelihood model of rows [N, D], or of their SecondMoment (Tipping & Bishop 1999, Eq. 14-15).

        W = U_K (L_K - sigma^2 I)^(1/2) from the K largest eigenvalues L of the covariance with
        divisor N. sigma^2 is `noise_variance` where that is given (eigenvalues below it count as
        sigma^2), else the mean of the other D - K eigenvalues. mean [D]: the known mean, else it is
        fitted. Raises ValueError: K not in 1..D, K = D with the noise to be fitted, rows that K
        dimensions explain fully, what the model refuses.
        """
        moment = data if isinstance(data, SecondMoment) else SecondMoment.of(data)
        dtype = data.dtype if torch.is_tensor(data) else moment.mean.dtype
        num_tokens = len(moment.mean)
        if check_count(num_latents, "K") > num_tokens - (noise_variance is None):
            raise ValueError(
                f"K = {num_latents} leaves no dimension for the noise: K must be below D = {num_tokens}, "
                "or at most D if the noise variance is given"
            )
        mean = moment.mean if mean is None else mean
        variances, axes = torch.linalg.eigh(moment.about(mean).covariance)  # the least first
        noise = noise_variance
        if noise is None:
            noise = variances[:-num_latents].mean()
            if not noise > torch.finfo(noise.dtype).eps * variances.sum():
                raise ValueError(
                    f"K = {num_latents} dimensions explain these rows of {num_tokens} tokens fully and "
                    "leave no noise to fit"
                )
        scales = (variances - noise).clamp(min=0).sqrt()
        weight = (axes * scales)[:, -num_latents:].flip(-1)
        return cls(weight.to(dtype), noise, mean.to(dtype))

    def sample(self, num_rows: int, *, generator: Generator) -> Tensor:
        """Rows [N, D] drawn from the model."""
        latents = randn((num_rows, self.num_latents), self.weight, generator)
        noise = randn((num_rows, self.num_tokens), self.weight, generator)
        return self.mean + latents @ self.weight.T + self.noise_variance.sqrt() * noise

    def log_prob(self, x: Tensor, observed: Tensor | None = None) -> Tensor:
        """log p(x_R), nats per row [...], of x [..., D]; by default of all tokens: the exact LML.

        (x_R - mu_R)^T S_RR^-1 (x_R - mu_R) is the least |x_R - mu_R - W_R z|^2 / sigma^2 + |z|^2:
        both terms are squares, so that nothing cancels.
        """
        observed = all_observed(self.num_tokens, x.device) if observed is None else observed
        seen, weight = self._seen(x, observed), self.weight.double()
        (root, inverse), latent, left = self._posterior(observed), 0 * weight[0], seen
        for _ in range(2):  # the second step mends what rounding lost in the first
            latent = latent + _rows_times(left @ weight - self._noise * latent, inverse)
            left = torch.where(observed, seen - latent @ weight.T, 0.0)
        squared = left.square().sum(-1) / self._noise + latent.square().sum(-1)
        return self._density(observed.double().sum(-1), root, squared)

    def conditional_moments(self, x: Tensor, observed: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of each masked token given x_R [..., D] (Eq. 7, minus sign); at observed ones x and 0.

        The variance depends on the mask alone and has its axes.
        """
        mean, variance = (part.to(self.weight.dtype) for part in self._moments(x, observed))
        return torch.where(observed, x, mean), torch.where(observed, 0.0, variance)

    def conditional_log_prob(self, x: Tensor, observed: Tensor) -> Tensor:
        """log p(x_j | x_R), nats per token [..., D]; exactly 0 at observed tokens."""
        mean, variance = self._moments(x, observed)
        return self._log_normal((x - mean).square(), variance, observed)

    def summarise(self, x: Tensor) -> SecondMoment:
        """The rows' SecondMoment."""
        check_shapes(x, all_observed(self.num_tokens, x.device), self.num_tokens, self.weight)
        return SecondMoment.of(x)

    def mean_conditional_log_prob(self, data: Tensor | SecondMoment, observed: Tensor) -> Tensor:
        """log p(x_j | x_R) averaged over rows, nats per token [P, D], for masks [P, D].

        data: rows [N, D], their SecondMoment, or that of a population, for which the mean is an
        expectation. The mean of (x_j - m_j)^2 is a quadratic form in the second moment, whose cost
        does not grow with N.
        """
        moment, per_mask = self._about_mean(data), self.weight.numel()
        check_mask(observed, self.num_tokens)
        step = at_once(AT_ONCE // per_mask, per_mask)
        return torch.cat([self._mean_of_few(moment, part) for part in observed.split(step)])

    def _mean_of_few(self, moment: SecondMoment, observed: Tensor) -> Tensor:
        """The same for a few masks, given the second moment C about mu.

        With g_j = A^-1 w_j, so that m_j - mu_j = g_j^T W_R^T (x_R - mu_R), the mean of (x_j -
        m_j)^2 is C_jj + g_j^T (W_R^T C_RR W_R g_j - 2 W_R^T C_Rj).
        """
        wt, variances = self.weight.double().T.contiguous(), moment.covariance.diagonal()
        _, inverse = self._posterior(observed, variances.max() / self._noise)
        seen = observed[:, None] * wt  # W_R^T, zero columns at masked tokens [P, K, D]
        # W_R^T C_Rj for every token j [P, K, D]: one large product is faster than many small ones
        cross = (seen.flatten(0, 1) @ moment.covariance).view_as(seen)
        gain = inverse @ wt  # g_j side by side [P, K, D]
        change = (cross @ seen.mT @ inverse @ wt).sub(cross, alpha=2)  # [P, K, D]
        squared = variances + (gain * change).sum(-2)
        return self._log_normal(squared, self._noise * (1 + (gain * wt).sum(-2)), observed)

    def mean_log_prob(self, data: Tensor | SecondMoment) -> Tensor:
        """The LML averaged over rows, nats per row (a scalar); data as in `mean_conditional_log_prob`."""
        moment = self._about_mean(data)
        total = moment.covariance.diagonal().sum()
        root, _ = self._posterior(all_observed(self.num_tokens, data.device), total / self._noise)
        # L^-1 W^T [K, D]
        projected = torch.linalg.solve_triangular(root, self.weight.double().T, upper=False)
        explained = (projected @ moment.covariance * projected).sum()
        return self._density(self.num_tokens, root, (total - explained) / self._noise)

    @property
    def _noise(self) -> Tensor:
        return self.noise_variance.double()

    def _seen(self, x: Tensor, observed: Tensor) -> Tensor:
        """x_R - mu_R with zeros at masked tokens, in float64 [..., D]."""
        check_shapes(x, observed, self.num_tokens, self.weight)
        check_finite(x, observed)
        return torch.where(observed, x - self.mean.double(), 0.0)

    def _moments(self, x: Tensor, observed: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of each token given x_R, in float64 [..., D]: right where it is masked."""
        seen, weight = self._seen(x, observed), self.weight.double()
        _, inverse = self._posterior(observed)
        latent = _rows_times(seen @ weight, inverse)  # the posterior mean of z, [..., K]
        # w_j^T A^-1 w_j as one product, with nothing of size K x D for each mask
        spread = inverse.flatten(-2) @ self._outer().T
        return self.mean + latent @ weight.T, self._noise * (1 + spread)

    def _outer(self) -> Tensor:
        """w_j w_j^T for each token [D, K K]."""
        weight = self.weight.double()
        return (weight[:, :, None] * weight[:, None, :]).flatten(1)

    def _posterior(self, observed: Tensor, ratio: Tensor | float = 1.0) -> tuple[Tensor, Tensor]:
        """Cholesky root and inverse of A = sigma^2 I + W_R^T W_R for each mask, [..., K, K] both.

        Raises ValueError where rounding may cost more than LOST nats: by the condition of A, which
        the traces of A and its inverse bound, times `ratio`, of the squares that are subtracted to
        sigma^2.
        """
        gram = (observed.double() @ self._outer()).unflatten(-1, (self.num_latents,) * 2)
        eye = torch.eye(self.num_latents, dtype=gram.dtype, device=gram.device)
        root, failed = torch.linalg.cholesky_ex(gram + self._noise * eye)
        root = root.where(failed[..., None, None] == 0, math.nan)
        inverse = torch.cholesky_inverse(root).mT  # symmetric; contiguous this way
        condition = root.square().sum((-2, -1)) * inverse.diagonal(dim1=-2, dim2=-1).sum(-1)
        lost = ~(torch.finfo(root.dtype).eps * condition * ratio <= LOST)  # or NaN
        if lost.any():
            raise ValueError(
                f"sigma^2 = {self.noise_variance.item():.3g} is too small under {int(lost.sum())} masks: rounding "
                "would cost digits, and the fewest if you average each row's answer"
            )
        return root, inverse

    def _about_mean(self, data: Tensor | SecondMoment) -> SecondMoment:
        """The second moment of rows, or that which is given, about mu."""
        data = data if isinstance(data, SecondMoment) else self.summarise(data)
        check_shapes(data.mean, all_observed(self.num_tokens, data.device), self.num_tokens)
        return data.about(self.mean)

    def _density(self, count: Tensor | int, root: Tensor, squared: Tensor) -> Tensor:
        """log p of `count` tokens, given the root of A and (x_R - mu_R)^T S_RR^-1 (x_R - mu_R), nats [...]."""
        log_det = (count - self.num_latents) * self._noise.log()
        log_det = log_det + 2 * root.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        return (-0.5 * (count * LOG_2PI + log_det + squared)).to(self.weight.dtype)

    def _log_normal(self, squared: Tensor, variance: Tensor, observed: Tensor) -> Tensor:
        """log N at masked tokens, from (x_j - m_j)^2 and v_j, nats [..., D]; 0 at observed ones."""
        answer = -0.5 * (LOG_2PI + variance.log() + squared / variance)
        return torch.where(observed, 0.0, answer).to(self.weight.dtype)


def _rows_times(rows: Tensor, matrices: Tensor) -> Tensor:
    """rows [..., K] times matrices [..., K, K]: [..., K]. Unlike @, it copies no matrix that rows share."""
    return torch.einsum("...k,...kl->...l", rows, matrices)
