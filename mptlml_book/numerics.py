"""What several models compute with: rows in blocks, and Newton's method for peaks of p(z | x_R)."""

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

LOG_2PI = math.log(2 * math.pi)
HALVINGS = 8  # of a step that lowers the function, before it is dropped


def batches(x: Tensor, observed: Tensor, size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Rows and masks [n, D], at most `size` at a time, of x and observed [..., D] of one shape."""
    rows, masks = (tensor.reshape(-1, tensor.shape[-1]).split(size) for tensor in (x, observed))
    return zip(rows, masks, strict=True)


def climb(
    height: Callable[[Tensor], Tensor],
    start: Tensor,
    *,
    num_steps: int,
    tolerance: float,
) -> Tensor:
    """A peak of height(z) [...] near the start z [..., K], by Newton's steps that never lower it: [..., K].

    Each step is halved until the height does not fall; after HALVINGS it is not taken. Ends after
    `num_steps`, or once no row's step is longer than `tolerance` (at least 100 roundings of the
    dtype: shorter steps are noise).
    """
    z, rounding = start, torch.finfo(start.dtype).eps
    for _ in range(num_steps):
        slope, precision = curvature(height, z)
        step, now = torch.linalg.solve(precision, slope), height(z)
        scale = torch.ones_like(z[..., :1])
        for halved in range(HALVINGS + 1):
            falls = ~(height(z + scale * step) >= now)  # a height of NaN is a fall
            if not falls.any():
                break
            scale = torch.where(falls[..., None], scale / 2 if halved < HALVINGS else 0.0, scale)
        step = scale * step
        z = z + step
        if not (step.abs() >= max(tolerance, 100 * rounding)).any():
            break
    return z


def curvature(height: Callable[[Tensor], Tensor], z: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient [..., K] at z [..., K] of a height(z) [...] of each point by itself, and minus its Hessian."""
    with torch.enable_grad():
        z = z.detach().requires_grad_()
        [slope] = torch.autograd.grad(height(z).sum(), z, create_graph=True)
        parts = slope.unbind(-1)
        bends = [torch.autograd.grad(part.sum(), z, retain_graph=True)[0] for part in parts]
    return slope.detach(), -torch.stack(bends, -1)


def root_at(height: Callable[[Tensor], Tensor], z: Tensor) -> Tensor:
    """A lower root [..., K, K] of the covariance of the normal density of the same peak as exp(height) at z."""
    return torch.linalg.cholesky(torch.linalg.inv(curvature(height, z)[1]))
