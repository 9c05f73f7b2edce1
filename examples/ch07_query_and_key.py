"""Why a token needs a question apart from its answer (article 7.2).

With one vector for both, a table of scores is symmetric and rewards likeness: a pronoun that looks
for a noun finds itself. Two projections of the same vector are enough to change that.
"""

from __future__ import annotations

import numpy as np
from show import claim, heading, matrices, say
from toy import NAMES, W_K, W_Q, X

from npgpt.ops.project import project_forward
from npgpt.ops.scores import scores_forward

heading("7.2", say("one vector for both, on the toy model of 7.3", "用同一个向量：七.3 的玩具模型"))
Q, K = project_forward(X, W_Q)[0], project_forward(X, W_K)[0]
alike, S = scores_forward(X, X)[0], scores_forward(Q, K)[0]
matrices(("x xᵀ", alike), ("S = Q Kᵀ", S), rows=NAMES)
claim(
    say(
        "x xᵀ is symmetric: t0 scores t2 as t2 scores t0",
        "x xᵀ 是对称的：t0 给 t2 的分数，就是 t2 给 t0 的分数",
    ),
    np.array_equal(alike, alike.T),
)
claim(
    say(
        "and each token scores itself highest: likeness is rewarded",
        "而且每个 token 给自己的分最高：只奖励“和我长得像的”",
    ),
    np.array_equal(alike.argmax(axis=1), np.arange(3)),
)
claim(
    say(
        f"S is not: t0 scores t2 with {S[0, 2]:.0f}, t2 scores t0 with {S[2, 0]:.0f}",
        f"S 不对称：t0 给 t2 打 {S[0, 2]:.0f} 分，t2 给 t0 打 {S[2, 0]:.0f} 分",
    ),
    (S[0, 2], S[2, 0]) == (3, 1),
)

heading("7.2", say('"it" is a pronoun and looks for a noun', "it 是个代词，想找的是一个名词"))
WORDS = ["cat", "sat", "it"]
words = np.eye(3)  # what a word is: noun, verb, pronoun
ask = np.array([[0, 1, 0], [1, 0, 0], [1, 0, 0]], float)  # what it looks for: verb, noun, noun
asked, answers = project_forward(words, ask)[0], project_forward(words, np.eye(3))[0]
alike, S = scores_forward(words, words)[0], scores_forward(asked, answers)[0]
matrices(("x xᵀ", alike), ("Q = x W_Q", asked), ("K = x", answers), ("Q Kᵀ", S), rows=WORDS)
found, wanted = ([WORDS[j] for j in scores.argmax(axis=1)] for scores in (alike, S))
claim(
    say("one vector for both: “it” finds only “it”", "同一个向量：it 只找到 it 自己"),
    found == ["cat", "sat", "it"],
)
claim(
    say(
        "W_Q turns the pronoun into “I look for a noun”: it finds cat",
        "W_Q 把代词投影到“我要找名词”的方向：it 找到 cat",
    ),
    wanted == ["sat", "cat", "cat"],
)
