"""Writing several tokens in one pass: schedules, what they cost, and the best one.

A schedule says how many tokens each pass writes, g_1, ..., g_k with sum D. Pass s starts with m_s =
D - (g_1 + ... + g_{s-1}) tokens hidden, and writes g_s of them, at random places, each from its own
distribution given what is visible. The scores S(m) are then read as a staircase: the pass earns g_s
S(m_s) where one token at a time would earn S(m_s) + S(m_s - 1) + ... + S(m_s - g_s + 1). The area
between curve and staircase is the expected Kullback-Leibler divergence (Hoogeboom et al. 2022, Sec.
3.1; Chen, Cong & Li 2025).
"""

import math
from collections.abc import Sequence

import numpy as np


def equal_steps(num_tokens: int, num_steps: int) -> list[int]:
    """Tokens written by each of `num_steps` passes, as equal as whole numbers can be, the larger first: sum D."""
    return [num_tokens // num_steps + (step < num_tokens % num_steps) for step in range(num_steps)]


def cosine_steps(num_tokens: int, num_steps: int) -> list[int]:
    """MaskGIT's schedule: after s of k passes about D cos(pi s / 2 k) tokens are hidden, and each pass writes one."""
    hidden = [num_tokens]
    for step in range(1, num_steps + 1):
        left = math.floor(num_tokens * math.cos(math.pi * step / (2 * num_steps)))
        hidden.append(min(max(left, num_steps - step), hidden[-1] - 1))
    return (-np.diff(hidden)).tolist()


def schedule_cost(scores: Sequence[float] | np.ndarray, steps: Sequence[int]) -> float:
    """The area between the curve and the schedule's staircase, nats per row: E[KL(p || q_schedule)], given the order.

    scores [D]: S(1), ..., S(D), nats per token, the model's expected scores for rows drawn from it.
    One pass costs the total correlation of the tokens; D passes cost nothing. Raises ValueError:
    `steps` whose sum is not D.
    """
    scores = np.asarray(scores, dtype=float)
    if sum(steps) != len(scores):
        raise ValueError(
            f"steps that write {sum(steps)} tokens do not fit scores of shape {scores.shape}"
        )
    hidden = len(scores) - np.cumsum([0, *steps[:-1]])
    return float(np.sum(scores)) - float(np.dot(steps, scores[hidden - 1]))


def best_steps(scores: Sequence[float] | np.ndarray, num_steps: int) -> list[int]:
    """The schedule of `num_steps` passes with the highest staircase, by dynamic programming: tokens per pass, sum D.

    scores [D]: S(1), ..., S(D), nats per token (Hoogeboom et al. 2022, Sec. 3.1). O(k D^2)
    operations. Raises ValueError: scores that are not finite.
    """
    if not np.isfinite(scores).all():
        raise ValueError("scores must be finite, or the best schedule is not known")
    num_tokens = len(scores)
    # [m hidden, m left after a pass]
    written = np.subtract.outer(range(num_tokens + 1), range(num_tokens + 1))
    gain = np.where(written > 0, written * np.append(0.0, scores)[:, None], -math.inf)
    # the highest staircase under the last m sizes, in 0 passes
    best = np.array([0.0, *[-math.inf] * num_tokens])
    choice = []
    for _ in range(num_steps):
        ways = gain + best
        choice.append(ways.argmax(1))
        best = ways.max(1)
    steps, hidden = [], num_tokens
    for left in reversed(choice):
        steps.append(int(hidden - left[hidden]))
        hidden = int(left[hidden])
    return steps
