from .masked_diffusion import best_steps, cosine_steps, equal_steps, schedule_cost  # noqa: F401
