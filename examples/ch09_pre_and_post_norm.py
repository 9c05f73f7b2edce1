"""LayerNorm before the sublayer or after the sum: what reaches the first block (article 9.3).

The stacks are in two_stacks.py. Leaves out training; see Xiong et al. 2020.
"""

from __future__ import annotations

import numpy as np
from show import claim, heading, say
from two_stacks import DEPTHS, by_depth

from npgpt.cli import width


def print_table(name: str, measured: np.ndarray) -> None:
    """A line for each depth: geometric means over the draws, of cosines the plain mean."""
    titles = say(
        "first block|lowest|highest|last block|direct path|trunk|cosine",
        "第一层|最小|最大|最后一层|直通路|主干|余弦",
    ).split("|")
    print(f"  {name:10}" + "".join(" " * (12 - width(title)) + title for title in titles))
    for L, draws in zip(DEPTHS, measured, strict=True):
        first, last, direct, trunk = np.exp(np.log(draws[:, :4]).mean(axis=0))
        row = first, draws[:, 0].min(), draws[:, 0].max(), last, direct, trunk, draws[:, 4].mean()
        print(f"  {L:3} {say('blocks', '层'):6}" + "".join(f"{value:12.3g}" for value in row))


def at_the_first_block(pre: np.ndarray, post: np.ndarray) -> None:
    """How much of the gradient gets there, and in which direction."""
    steady = np.median(pre[-1, :, 0]) / np.median(pre[0, :, 0])
    luck, other = (draws[-1, :, 0].max() / draws[-1, :, 0].min() for draws in (post, pre))
    rest, kept, lost = post[-1, :, 2].max(), pre[-1, :, 4], post[-1, :, 4].mean()
    claim(
        say(
            f"pre-norm: 32 times the depth, {steady:.1f} times the gradient at the first block",
            f"pre-norm：深 32 倍，第一层的梯度是原来的 {steady:.1f} 倍",
        ),
        0.5 < steady < 2,
    )
    claim(
        say(
            f"post-norm: a matter of luck, {luck:.0f}-fold between starts, not {other:.1f}-fold",
            f"post-norm：看运气，起点之间差 {luck:.0f} 倍，而不是 {other:.1f} 倍",
        ),
        luck > 3 * other,
    )
    claim(
        say(
            f"post-norm: every norm takes its part; of the direct path {rest:.0e}",
            f"post-norm：每个 norm 都削一份，直通路只剩 {rest:.0e}",
        ),
        rest < 1e-3,
    )
    claim(
        say(
            f"pre-norm: the bottom gets the top's direction, {kept.mean():.2f}, not {lost:.2f}",
            f"pre-norm：底层仍收到顶端的方向，余弦 {kept.mean():.2f}，而不是 {lost:.2f}",
        ),
        kept.min() > 0.05 and abs(lost) < 0.05,
    )


def at_the_last_block(pre: np.ndarray, post: np.ndarray) -> None:
    """How the gradient there and the trunk depend on the depth."""
    falls, stays = (
        np.log(draws[-1, :, 1].mean() / draws[0, :, 1].mean()) / np.log(DEPTHS[-1])
        for draws in (pre, post)
    )
    claim(
        say(
            f"pre-norm: the last block's falls as depth to the power {falls:.2f}, about 1/√depth",
            f"pre-norm：最后一层的梯度按深度的 {falls:.2f} 次方变小，约是 1/√深度",
        ),
        -0.6 < falls < -0.4,
    )
    claim(
        say(
            f"post-norm: the power is {stays:.2f}; it stays large, hence the warm-up",
            f"post-norm：次方是 {stays:.2f}，一直很大，所以要 warmup",
        ),
        abs(stays) < 0.1,
    )
    claim(
        say(
            "pre-norm needs ln_f: the trunk grows with the depth; post-norm leaves it at 1",
            "pre-norm 需要 ln_f：主干随深度变大；post-norm 的一直是 1",
        ),
        (np.diff(pre[..., 3].mean(axis=1)) > 0).all() and np.allclose(post[..., 3], 1, atol=0.01),
    )


def main() -> None:
    title = say("gradient by depth; 8 random starts each", "梯度随深度；各取 8 个随机起点")
    heading("9.3", title)
    pre, post = (by_depth(pre=way) for way in (True, False))
    print_table("pre-norm", pre)
    print_table("post-norm", post)
    print(
        say(
            '  direct path: what comes down the "+" alone; in pre-norm no norm stands in its way;\n'
            "  trunk: standard deviation at the top; cosine: of the gradients at its two ends",
            "  直通路：只沿“+”下来的那份；pre-norm 的路上没有 norm；\n"
            "  主干：顶端的标准差；余弦：主干两端梯度之间的",
        )
    )
    at_the_first_block(pre, post)
    at_the_last_block(pre, post)


if __name__ == "__main__":
    main()
