"""A folder for each architecture: `gpt2/model.py` is the page to read first.

Residuals and norms are written out in each. `common.py` and `causal.py` hold what they share,
`auto.py` finds and loads a model by its name.
"""
