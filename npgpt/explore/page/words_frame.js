// Sentences around the chapters: head, strip, findings, controls.

Object.assign(WORDS, {
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
  expectsRight: [
    "After {token} the model expects {guess} with {p}, which is right.",
    "读到 {token}，模型预测下一个是 {guess}，概率 {p}，猜对了。",
  ],
  expectsWrong: [
    "After {token} the model expects {guess} with {p}; what follows is {next}, its number {rank}.",
    "读到 {token}，模型预测下一个是 {guess}，概率 {p}；实际是 {next}，排第 {rank}。",
  ],
  expectsLast: [
    "After {token} the text ends; the model would go on with {guess}, {p}.",
    "{token} 之后文本结束；模型会接着说 {guess}，概率 {p}。",
  ],
  looks: [
    "While reading {token}, {head} looks at {key} with weight {w}.",
    "读 {token} 时，{head} 以权重 {w} 看 {key}。",
  ],
  headOfBlock: ["head {head} of block {layer}", "block {layer} 的头 {head}"],
  withoutHead: ["Switch that head off and the {change}", "关掉这个头，{change}"],
  withoutMlp: [
    "; switch off block {layer}’s MLP and it {change}.",
    "；关掉 block {layer} 的 MLP，{change}。",
  ],
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
  sectionOfStep: ["7.3 step {step}", "7.3 第 {step} 步"],
  article: ["Article {section}", "文章 {section}"],
  setup: ["Where model, seen, back and grads come from", "model、seen、back、grads 从哪里来"],
});
