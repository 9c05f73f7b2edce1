"""shared_heads: several heads of queries look at one head of keys and values (article 7.6)."""

from __future__ import annotations

import numpy as np

from npgpt.ops.shared_heads import (
    group_queries_forward,
    share_heads_backward,
    share_heads_forward,
    ungroup_queries_forward,
)


def test_neighbouring_heads_share(rng: np.random.Generator) -> None:
    """Of 6 heads of queries, 0 to 2 look at head 0 of the keys, 3 to 5 at head 1."""
    q, k = rng.standard_normal((6, 5, 4)), rng.standard_normal((2, 7, 4))
    grouped, _ = group_queries_forward(q, n_kv_head=2)
    shared, _ = share_heads_forward(k, n_group=3)
    scores, _ = ungroup_queries_forward(grouped @ shared.swapaxes(-1, -2))
    for h, kv in enumerate([0, 0, 0, 1, 1, 1]):
        np.testing.assert_allclose(scores[h], q[h] @ k[kv].T, rtol=1e-13)


def test_nothing_is_copied(rng: np.random.Generator) -> None:
    k, q = rng.standard_normal((2, 3, 7, 4)), rng.standard_normal((2, 6, 5, 4))
    assert np.shares_memory(share_heads_forward(k, n_group=2)[0], k)
    assert np.shares_memory(group_queries_forward(q, n_kv_head=3)[0], q)


def test_a_shared_head_gets_the_sum(rng: np.random.Generator) -> None:
    dy = rng.standard_normal((2, 3, 7, 4))
    np.testing.assert_allclose(share_heads_backward(dy, None), dy[:, 0] + dy[:, 1] + dy[:, 2])
