// Every sentence of the page in English and Chinese. {name} is filled in: a text or an element.

const WORDS = {
  forward: ["Forward", "前向"],
  backward: ["Back", "反向"],
  direction: ["Direction", "方向"],
  ofLoss: ["of the mean loss, N = {n}", "对平均损失，N = {n}"],
  copy: ["Copy link", "复制链接"],
  copied: ["Copied", "已复制"],
  save: ["Save figure", "保存图"],
  print: ["Print", "打印"],
  scheme: ["Dark or light", "深色或浅色"],
  facts: [
    "{blocks} blocks · {heads} heads · width {d} · {tokens} tokens · mean loss {loss} nats",
    "{blocks} 个 block · {heads} 个头 · 宽 {d} · {tokens} 个 token · 平均损失 {loss} nat",
  ],
  expectsRight: ["After {token} the model expects {guess} with {p}, which is right.", "读到 {token}，模型预测下一个是 {guess}，概率 {p}，猜对了。"],
  expectsWrong: [
    "After {token} the model expects {guess} with {p}; what follows is {next}, its number {rank}.",
    "读到 {token}，模型预测下一个是 {guess}，概率 {p}；实际是 {next}，排第 {rank}。",
  ],
  expectsLast: ["After {token} the text ends; the model would go on with {guess}, {p}.", "{token} 之后文本结束；模型会接着说 {guess}，概率 {p}。"],
  looks: ["While reading {token}, {head} looks at {key} with weight {w}.", "读 {token} 时，{head} 以权重 {w} 看 {key}。"],
  headOfBlock: ["head {head} of block {layer}", "block {layer} 的头 {head}"],
  withoutHead: ["Switch that head off and the {change}", "关掉这个头，{change}"],
  withoutMlp: ["; switch off block {layer}’s MLP and it {change}.", "；关掉 block {layer} 的 MLP，{change}。"],
  lossRises: ["loss rises by {x}", "损失上升 {x}"],
  lossFalls: ["loss falls by {x}", "损失下降 {x}"],
  itRises: ["rises by {x}", "损失上升 {x}"],
  itFalls: ["falls by {x}", "损失下降 {x}"],
  token: ["token", "token"],
  position: ["position", "位置"],
  following: ["follows {token}", "跟随 {token}"],
  followOne: ["Follow token {t}, {token}", "跟随 token {t}，{token}"],
  foldedColumns: ["{n} tokens folded", "折起 {n} 个 token"],
  folding: [
    "A long text: columns for the first token, the followed one, its neighbours and what the chosen head looks at most. Any token of the title can be followed.",
    "文本较长：只留首个 token、跟随的 token 及其邻居、所选的头最看重的 token。点标题里任何一个 token 就能跟随它。",
  ],
  raises: ["filled: more of it raises the loss", "实心：增大它，损失上升"],
  lowers: ["hollow: more of it lowers the loss", "空心：增大它，损失下降"],
  area: ["area = size", "面积 = 大小"],
  notScored: ["not scored: no token follows", "不计损失：后面没有 token"],
  article: ["Article {section}", "文章 {section}"],
  setup: ["Where model, seen, back and grads come from", "model、seen、back、grads 从哪里来"],

  tokensTitle: ["{Count} tokens, {count} pipelines", "{count}个 token，{count}条流水线"],
  tokensLead: ["Every column below this strip belongs to the token above it. Only attention moves anything sideways.", "往下每一列都属于它上方的 token。只有 attention 能让信息横向移动。"],
  tokensBack: ["Where the gradient arrives: what a little more of each embedding would do to the loss.", "梯度回到起点：每个 embedding 再大一点，损失会怎样。"],
  id: ["id", "编号"],
  nextLoss: ["−log p(next)", "−log p(下一个)"],
  lossShort: ["loss", "损失"],
  saliency: ["dx · x", "dx · x"],
  bytes: ["Bytes of each token", "每个 token 的字节"],

  streamTitle: ["{Count} corrections to one stream", "一条主干，{count}次修正"],
  streamLead: ["At {token}: what each sublayer adds to the residual stream, and what the stream would say if it ended there.", "在 {token} 处：每个子层给主干（残差流）加了多少，主干若到此为止会说什么。"],
  streamBack: ["At {token}, the gradient walks up the same stream. Each row: what a little more of this correction would do to the loss.", "在 {token} 处，梯度沿同一条主干往回走。每行：这个修正量再大一点，损失会怎样。"],
  sizeOnly: ["bar: size of what is added", "条：加上的大小"],
  sizes: ["bar: size of what is added; line: size of the stream", "条：加上的大小；折线：主干的大小"],
  alongGradient: ["dx · added", "dx · 修正量"],
  lensSays: ["it would say (logit lens)", "此刻会说（logit lens）"],
  rankOf: ["rank of {token}", "{token} 的名次"],
  gridFold: ["The same at all positions (logit lens)", "所有位置（logit lens）"],
  lensTitle: ["{b:Logit lens} likeliest next token at every station; darker = surer, framed = right", "{b:Logit lens} 每一站最可能的下一个 token；越深越确定，加框为猜对"],
  lensBack: ["{b:dx · added} at every station and position; outlined guesses were right", "{b:dx · 修正量} 每一站、每个位置；加框为猜对"],

  attentionTitle: ["The only place where columns meet", "唯一让各列相遇的地方"],
  attentionLead: ["Each row says how much a token takes from each token to its left. Every row sums to 1.", "每一行说明这个 token 从左边各 token 取多少。每行之和为 1。"],
  attentionBack: ["The same tables, turned over: what a little more weight in each cell would do to the loss.", "同样的表，翻过来看：每格权重再大一点，损失会怎样。"],
  galleryTitle: ["{b:All {n} heads} rows look at columns; from left to right: blocks 0 to {last}", "{b:全部 {n} 个头} 行看列；从左到右：block 0 到 {last}"],
  galleryFlow: ["{b:All {n} heads} rows look at columns", "{b:全部 {n} 个头} 行看列"],
  galleryBack: ["{b:All {n} heads} dP, one scale for all", "{b:全部 {n} 个头} dP，同一把尺子"],
  leftOut: ["{n} heads are drawn empty: their tables are not in this page; --full keeps them.", "{n} 个头是空的：它们的表不在这一页里；--full 会全部留下。"],
  arrange: ["arrange by", "排列"],
  byplace: ["place", "位置"],
  byjob: ["what it does", "作用"],
  bymoved: ["what it moves", "搬运量"],
  bygradient: ["gradient", "梯度"],
  quietFold: ["{n} more heads", "另有 {n} 个头"],
  headRow: ["head {h}", "头 {h}"],
  jobfirst: ["first", "首个"],
  jobmostlyfirst: ["mostly first", "多看首个"],
  jobsame: ["same token", "同一 token"],
  jobmostlysame: ["mostly same", "多看同一个"],
  jobback: ["previous", "前一个"],
  jobmostlyback: ["mostly prev.", "多看前一个"],
  jobfar: ["{n} back", "往前第 {n} 个"],
  jobspread: ["spread", "分散"],
  jobmixed: ["mixed", "混合"],
  headTitle: ["{b:{address} — block {layer}, head {head}} reads {key} when it stands at {token}", "{b:{address} — block {layer} 的头 {head}} 站在 {token} 时读 {key}"],
  steps: ["The six steps of attention", "attention 的六步"],
  step1: ["project", "投影"],
  step2: ["score", "打分"],
  step3: ["scale", "缩放"],
  step4: ["mask", "掩码"],
  step5: ["softmax", "softmax"],
  step6: ["weighted sum", "加权求和"],
  say1: ["each token makes a question q, a key k, a value v", "每个 token 做出 q、k、v"],
  say2: ["q · k: how well question and key agree; shaded within each row", "q · k：问与键有多合；每行各自上色"],
  say3: ["divided by √d, so that softmax stays soft", "除以 √d，softmax 才不会太硬"],
  say4: ["no token looks to its right", "不许看右边"],
  say5: ["scores become shares that sum to 1", "分数变成份额，和为 1"],
  say6: ["what is moved: ‖P v W_O‖", "搬了多少：‖P v W_O‖"],
  back1: ["gradients of q, k and v", "q、k、v 的梯度"],
  back2: ["before scaling: the same, √d times smaller", "缩放之前：同一张图，小 √d 倍"],
  back3: ["masked cells pass nothing on", "掩码挡住的格子什么也不传"],
  back4: ["dS = P ⊙ (dP − Σ P dP): only differences within a row count", "dS = P ⊙ (dP − Σ P dP)：只有行内差别算数"],
  back5: ["dP: what a little more weight does", "dP：权重再大一点会怎样"],
  back6: ["P ⊙ dP: what the weight does as it is", "P ⊙ dP：现有权重的作用"],
  times: ["in units of {power}", "单位 {power}"],
  perUnit: ["nats per unit of weight", "nat / 单位权重"],
  scaleRoot: ["0 … 1 (square root scale)", "0 … 1（平方根刻度）"],
  scaleRow: ["least … most, each row for itself", "每行各自从小到大"],
  scaleMoved: ["0 … {most} (square root scale)", "0 … {most}（平方根刻度）"],
  noVectors: ["q, k and v of this head are not in this page; --full keeps those of all heads.", "这个头的 q、k、v 不在这一页里；--full 会保留所有头的。"],
  noTable: ["The tables of this head are not in this page; --full keeps those of all heads.", "这个头的表不在这一页里；--full 会保留所有头的。"],
  vectorOf: ["{name} of {token}", "{token} 的 {name}"],
  products: ["{n} products", "{n} 个乘积"],
  sumTo: ["sum to {x}", "相加得 {x}"],
  turned: ["q and k are turned by their position: {p} × θ from {most} down to {least} rad", "q、k 随位置旋转：{p} × θ，从 {most} 到 {least} 弧度"],
  shares: ["shares k and v with {heads}", "与 {heads} 共用 k、v"],
  looksAtCell: ["{token} looks at {key}, {w}", "{token} 看 {key}，{w}"],
  gradientOfCell: ["{token} to {key}: {w}", "{token} 到 {key}：{w}"],
  tableTitle: ["{address} at {token}", "{address}，位于 {token}"],
  looksAt: ["looks at", "看"],
  movesThere: ["moves from there", "从那里搬来"],
  lossWithout: ["loss without it", "没有它，损失"],
  foretold: ["as the gradient foretold", "梯度的预告"],
  hardest: ["weight pulled hardest", "被拉得最紧的权重"],
  itsJob: ["over the whole text", "整句来看"],

  neuronsTitle: ["Neurons that speak at {token}", "在 {token} 处开口的神经元"],
  neuronsLead: ["The {n} strongest of {L} × {F}. A bar for each token says how hard it fires there; below, the tokens that it raises and lowers.", "{L} × {F} 个里最强的 {n} 个。每个 token 一根条，说明它在那里多强；下面是它推高、压低的 token。"],
  neuronsBack: ["What a little more activation would do to the loss, token by token.", "激活再强一点，损失会怎样，逐个 token 来看。"],
  moves: ["moves {x}", "搬运 {x}"],
  moreNeurons: ["{n} more of {all}", "另有 {n} 个，共 {all} 个"],

  answersTitle: ["Why {target} and not {foil}", "为什么是 {target}，不是 {foil}"],
  answersLead: ["Softmax at {token}; below it, part by part, how the difference of two logits comes about. The parts add up exactly.", "{token} 处的 softmax；下面逐个部件看两个 logit 的差从何而来。各部分相加分毫不差。"],
  answersBack: ["Here the way back begins: the probability, minus 1 at the true answer.", "反向从这里出发：概率减去正确答案处的 1。"],
  explain: ["Compare", "比较"],
  against: ["with", "与"],
  trueNext: ["✓ true next", "✓ 真正的下一个"],
  differenceIs: ["{b:logit({target}) − logit({foil}) = {x}} in the model’s order; ▸ opens a block’s heads", "{b:logit({target}) − logit({foil}) = {x}} 按模型的顺序；▸ 展开一个 block 的头"],
  slopeIs: ["{b:Each part × the gradient at the end} sums to {x}: the last norm ignores the length of the stream", "{b:各部件 × 末端梯度} 合计 {x}：最后的归一化不在乎主干的长短"],
  biases: ["biases", "偏置"],
  sum: ["sum", "合计"],
  fixedScale: ["The last norm’s scale is held at its value in this pass; that is what makes the parts add up.", "最后一层归一化的尺度固定为这一遍的值，各部分才能相加。"],
  beforeN: ["Bars: before division by N = {n}.", "条：除以 N = {n} 之前。"],

  silentTitle: ["What if a part were silent", "假如一个部件不出声"],
  silentLead: ["Each part switched off in turn: how much the mean loss changes, run again, against what the gradient foretold.", "逐个关掉每个部件：重跑一遍，平均损失变多少；梯度又预告了多少。"],
  exact: ["exact (run again)", "精确（重跑）"],
  firstOrder: ["first order, from the gradient", "一阶，由梯度预告"],
  changeOf: ["change of the loss, nats", "损失的变化，nat"],
  better: ["← better without it", "← 没有它更好"],
  worse: ["worse without it →", "没有它更差 →"],
  needsScript: ["This page draws itself and needs JavaScript.", "这一页自己作图，需要 JavaScript。"],
};

/** The text of a key in the language of the page. Unknown keys are a fault of the page. */
function pattern(key) {
  if (!WORDS[key]) throw new Error(`no words for ${key}`);
  return WORDS[key][state.lang === "zh" ? 1 : 0];
}

const t = (key, values = {}) => fill(pattern(key), values).map((x) => x.textContent ?? x).join("");

/** The same as a list of texts and elements; {b:…} is bold, and may have fillings inside. */
const say = (key, values = {}) => fill(pattern(key), values);

function fill(text, values) {
  const found = [];
  const piece = /\{b:((?:[^{}]|\{\w+\})*)\}|\{(\w+)\}/g;
  let end = 0;
  for (const match of text.matchAll(piece)) {
    found.push(text.slice(end, match.index));
    end = match.index + match[0].length;
    if (match[1] !== undefined) {
      const bold = document.createElement("b");
      bold.append(...fill(match[1], values));
      found.push(bold);
    } else {
      const value = values[match[2]];
      if (value === undefined) throw new Error(`{${match[2]}} of "${text}" is not filled in`);
      found.push(...[value].flat());
    }
  }
  return [...found, text.slice(end)].filter((part) => part !== "");
}

const quoted = (text) => (state.lang === "zh" ? `“${text}”` : `“${text}”`);
