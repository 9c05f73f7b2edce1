"""The matrices that the article works through by hand (7.3), as it prints them."""

from __future__ import annotations

import numpy as np

X = np.array([[1, 0, 1, 0], [0, 1, 0, 1], [1, 1, 0, 0]], float)
W_Q = np.array([[1, 0, 0, 0], [0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1]], float)
W_K = np.array([[1, 0, 1, 0], [0, 1, 0, 1], [0, 0, 1, 0], [0, 0, 0, 1]], float)
W_V = np.eye(4)

Q = np.array([[2, 0, 1, 0], [0, 2, 0, 1], [1, 1, 0, 0]], float)
K = np.array([[1, 0, 2, 0], [0, 1, 0, 2], [1, 1, 1, 1]], float)
S = np.array([[4, 0, 3], [0, 4, 3], [1, 1, 2]], float)
SCALED = np.array([[2, 0, 1.5], [0, 2, 1.5], [0.5, 0.5, 1]])
MASKED = np.array([[2, -np.inf, -np.inf], [0, 2, -np.inf], [0.5, 0.5, 1]])
# Rounded to two digits, as printed.
P = np.array([[1, 0, 0], [0.12, 0.88, 0], [0.27, 0.27, 0.45]])
OUT = np.array([[1, 0, 1, 0], [0.12, 0.88, 0.12, 0.88], [0.73, 0.73, 0.27, 0.27]])
