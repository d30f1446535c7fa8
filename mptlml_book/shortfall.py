from .known_language import Shortfall  # noqa: F401
