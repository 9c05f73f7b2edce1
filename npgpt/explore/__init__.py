"""One pass of a model, there and back, as a page to walk through: `explore(model, ids)`."""

from npgpt.explore.notebook import explore

__all__ = ["explore"]
