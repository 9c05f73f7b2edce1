// Sentences of chapters 5, 9, 8, 10 and of silent parts.

Object.assign(WORDS, {
  tokensTitle: ["{Count} tokens, {count} pipelines", "{count}个 token，{count}条流水线"],
  tokensLead: [
    "Every column below this strip belongs to the token above it. Only attention moves anything sideways.",
    "往下每一列都属于它上方的 token。只有 attention 能让信息横向移动。",
  ],
  tokensBack: [
    "Where the gradient arrives: what a little more of each embedding would do to the loss.",
    "梯度回到起点：每个 embedding 再大一点，损失会怎样。",
  ],
  id: ["id", "编号"],
  nextLoss: ["−log p(next)", "−log p(下一个)"],
  lossShort: ["loss", "损失"],
  saliency: ["dx · x", "dx · x"],
  bytes: ["Bytes of each token", "每个 token 的字节"],

  streamTitle: ["{Count} corrections to one stream", "一条主干，{count}次修正"],
  streamLead: [
    "At {token}: what each sublayer adds to the residual stream, and what the stream would say if it ended there.",
    "在 {token} 处：每个子层给主干（残差流）加了多少，主干若到此为止会说什么。",
  ],
  streamBack: [
    "At {token}, the gradient walks up the same stream. Each row: what a little more of this correction would do to the loss.",
    "在 {token} 处，梯度沿同一条主干往回走。每行：这个修正量再大一点，损失会怎样。",
  ],
  sizeOnly: ["bar: size of what is added", "条：加上的大小"],
  sizes: [
    "bar: size of what is added; line: size of the stream",
    "条：加上的大小；折线：主干的大小",
  ],
  alongGradient: ["dx · added", "dx · 修正量"],
  lensSays: ["it would say (logit lens)", "此刻会说（logit lens）"],
  rankOf: ["rank of {token}", "{token} 的名次"],
  gridFold: ["The same at all positions (logit lens)", "所有位置（logit lens）"],
  lensTitle: [
    "{b:Logit lens} likeliest next token at every station; darker = surer, framed = right",
    "{b:Logit lens} 每一站最可能的下一个 token；越深越确定，加框为猜对",
  ],
  lensBack: [
    "{b:dx · added} at every station and position; outlined guesses were right",
    "{b:dx · 修正量} 每一站、每个位置；加框为猜对",
  ],

  neuronsTitle: ["Neurons that speak at {token}", "在 {token} 处开口的神经元"],
  neuronsLead: [
    "The {n} strongest of {L} × {F}. A bar for each token says how hard it fires there; below, the tokens that it raises and lowers.",
    "{L} × {F} 个里最强的 {n} 个。每个 token 一根条，说明它在那里多强；下面是它推高、压低的 token。",
  ],
  neuronsBack: [
    "What a little more activation would do to the loss, token by token.",
    "激活再强一点，损失会怎样，逐个 token 来看。",
  ],
  moves: ["moves {x}", "搬运 {x}"],
  moreNeurons: ["{n} more of {all}", "另有 {n} 个，共 {all} 个"],

  answersTitle: ["Why {target} and not {foil}", "为什么是 {target}，不是 {foil}"],
  answersLead: [
    "Softmax at {token}; below it, part by part, how the difference of two logits comes about. The parts add up exactly.",
    "{token} 处的 softmax；下面逐个部件看两个 logit 的差从何而来。各部分相加分毫不差。",
  ],
  answersBack: [
    "Here the way back begins: the probability, minus 1 at the true answer.",
    "反向从这里出发：概率减去正确答案处的 1。",
  ],
  explain: ["Compare", "比较"],
  against: ["with", "与"],
  trueNext: ["✓ true next", "✓ 真正的下一个"],
  differenceIs: [
    "{b:logit({target}) − logit({foil}) = {x}} in the model’s order; ▸ opens a block’s heads",
    "{b:logit({target}) − logit({foil}) = {x}} 按模型的顺序；▸ 展开一个 block 的头",
  ],
  slopeIs: [
    "{b:Each part × the gradient at the end} sums to {x}: the last norm ignores the length of the stream",
    "{b:各部件 × 末端梯度} 合计 {x}：最后的归一化不在乎主干的长短",
  ],
  biases: ["biases", "偏置"],
  sum: ["sum", "合计"],
  fixedScale: [
    "The last norm’s scale is held at its value in this pass; that is what makes the parts add up.",
    "最后一层归一化的尺度固定为这一遍的值，各部分才能相加。",
  ],
  beforeN: ["Bars: before division by N = {n}.", "条：除以 N = {n} 之前。"],

  silentTitle: ["What if a part were silent", "假如一个部件不出声"],
  silentLead: [
    "Each part switched off in turn: how much the mean loss changes, run again, against what the gradient foretold.",
    "逐个关掉每个部件：重跑一遍，平均损失变多少；梯度又预告了多少。",
  ],
  exact: ["exact (run again)", "精确（重跑）"],
  firstOrder: ["first order, from the gradient", "一阶，由梯度预告"],
  changeOf: ["change of the loss, nats", "损失的变化，nat"],
  better: ["← better without it", "← 没有它更好"],
  worse: ["worse without it →", "没有它更差 →"],
});
